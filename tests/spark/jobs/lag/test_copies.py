"""`pipeline lag --copies`: the replicas that `pipeline sync` keeps are measured beside all others."""

import pytest
from tests.spark.jobs.sync.tables.test_history import Tasks, run_for
from tests.spark.jobs.sync.test_ticks import SETTINGS, Master
from typer.testing import CliRunner

from twinlog.base.clock import wall_clock_ms
from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.main import app
from twinlog.cli.pipeline.lag import summarised
from twinlog.client.sync import Producer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.lag.job import as_batch, lost_copies
from twinlog.spark.jobs.lag.sample import BrokerGroup, sample_brokers
from twinlog.spark.jobs.sync_status import by_broker, status_of


@pytest.fixture
def master(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "master", SETTINGS) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        yield Master(tmp_path, broker, producer)


def sampled(master, now_ms=wall_clock_ms):
    brokers = BrokerGroup("C", "broker-a", {0: master.target.address})
    options = ClusterOptions(name_servers=(master.broker.namesrv_address,))
    rows = list(sample_brokers(brokers, options, (), now_ms, by_broker(status_of(master.to)).get("broker-a")))
    return [row for row in rows if row.kind != "group"]


def test_a_copy_has_a_row_with_its_messages_bytes_and_age(master):
    run = run_for(master)
    master.send(5)
    run.tick(Tasks(), 0)
    (even,) = sampled(master)
    assert (even.kind, even.broker_id, even.messages, even.bytes, even.seconds) == ("copy", None, 0, 0, 0.0)
    master.send(7)
    (behind,) = sampled(master)
    assert (behind.messages, behind.messages_exact) == (7, True) and behind.bytes > 7 * 900
    assert behind.seconds >= 0 and behind.broker_offset - behind.consumer_offset == behind.bytes
    (skewed,) = sampled(master, lambda: wall_clock_ms() - 86_400_000)
    assert skewed.seconds == 0, "never negative, whatever the clocks are"
    assert as_batch([behind]).to_pylist()[0]["brokerId"] is None
    assert summarised((behind,))[0][:3] == ("copy", "broker-a", "")
    (lost,) = lost_copies(by_broker(status_of(master.to)), [])
    assert (lost.kind, lost.broker_name) == ("error", "broker-a") and "no such broker is registered" in lost.error


def test_a_directory_without_copies_is_refused_before_spark_starts(tmp_path):
    words = ["pipeline", "lag", "-n", "h:1", "--to", str(tmp_path / "lag"), "--once", "--copies", str(tmp_path)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1 and "is not written by a synchronisation" in found.stderr
