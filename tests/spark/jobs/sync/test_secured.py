"""Masters whose HA port takes TLS only, or that give their log only to those who know the shared secret."""

import pytest
from tests.net.test_tls import write
from tests.spark.jobs.sync.test_ticks import SETTINGS, Master, assert_same_log
from typer.testing import CliRunner

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.main import app
from twinlog.client.sync import Producer
from twinlog.net.certificates import issue, make_authority
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.task import run_group
from twinlog.spark.jobs.sync.tick_work import TickWork

SECRET = "a secret of the two brokers"


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """(settings of a broker, its authority's certificate, that of another)."""
    folder, authority = tmp_path_factory.mktemp("tls"), make_authority()
    cert, key = write(folder, "master", issue(authority, "master", ["127.0.0.1"], 30))
    ca, _ = write(folder, "ca", authority)
    other, _ = write(folder, "other", make_authority())
    settings = {
        "haTlsEnable": "true",
        "haTlsRequired": "true",
        "haSharedSecret": SECRET,
        "tls.server.certPath": str(cert),
        "tls.server.keyPath": str(key),
    }
    return settings, str(ca), str(other)


@pytest.fixture
def master(tmp_path, tls):
    with (
        EmbeddedBroker(tmp_path / "master", {**SETTINGS, **tls[0]}) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        yield Master(tmp_path, broker, producer)


def tick(master, secret=SECRET, **tls):
    cluster = ClusterOptions(name_servers=(), tls=bool(tls), **tls)
    work = TickWork(to=str(master.to), cluster=cluster, groups=[[master.target]], ha_secret=secret)
    (report,) = run_group(work, 0)
    return report


def test_the_log_is_copied_over_tls_and_the_secret_is_proven(master, tls):
    master.send(300)
    first = tick(master, tls_ca_file=tls[1])
    assert first.error == "" and first.lag == 0 and {one.source for one in first.ranges} == {"ha"}
    master.send(20, topic="Another")
    again = tick(master, tls_ca_file=tls[1])
    assert again.error == "" and again.end > first.end
    assert_same_log(master.home / "master" / "store", master.replica)
    assert "Another" in (master.replica / "config" / "topics.json").read_text()


def test_without_tls_the_secret_or_the_right_authority_nothing_is_copied_and_the_reason_is_named(master, tls):
    master.send(5)
    no_tls = tick(master)
    assert "takes TLS only: give --tls, and --tls-ca" in no_tls.error
    assert "has not proven haSharedSecret" in tick(master, None, tls_ca_file=tls[1]).error
    assert "the proof of haSharedSecret is wrong" in tick(master, "another secret of 16+", tls_ca_file=tls[1]).error
    assert "certificate" in tick(master, tls_ca_file=tls[2]).error
    assert not (master.replica / "commitlog").exists()


def test_the_secret_comes_from_a_file_that_is_checked(tmp_path):
    def told(*words):
        found = CliRunner().invoke(app, ["pipeline", "sync", "--to", str(tmp_path), "--address", "h:1", *words])
        assert found.exit_code == 1
        return found.stderr

    assert f"--ha-secret-file '{tmp_path}/none' cannot be read" in told("--ha-secret-file", f"{tmp_path}/none")
    (tmp_path / "short").write_text("abc\n")
    assert "has fewer than 16 characters" in told("--ha-secret-file", f"{tmp_path}/short")
