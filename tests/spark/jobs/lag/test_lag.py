"""Lag: what a sample tells, how it is drawn, and that each moment is in the table once."""

import json
import socket
import time
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.commands import run

from twinlog.cli.pipeline.lag import summarised
from twinlog.client import NoNameServer
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.lag.charts import charts_of, check_plot, error_note, write_plot
from twinlog.spark.jobs.lag.job import LagJob, as_batch, broker_groups, lag, slot_of
from twinlog.spark.jobs.lag.plot import (
    Chart,
    draw,
    nice_ceiling,
    page,
    short,
    thinned,
    time_ticks,
    unbroken,
    worst_first,
)
from twinlog.spark.jobs.lag.sample import (
    BrokerGroup,
    LagRow,
    committed_offsets,
    group_rows,
    measure_replica,
    sample_brokers,
)
from twinlog.wire.bodies import BrokerData, ClusterInfo, TopicOffset
from twinlog.wire.message import Message, encode_message

BLANK = LagRow(kind="error", cluster="c", broker_name="broker-a")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

# -- samples -------------------------------------------------------------------------------------------


def test_lag_is_what_a_group_can_still_read():
    ends = {("T", 0): TopicOffset(min_offset=0, max_offset=10), ("T", 1): TopicOffset(min_offset=7, max_offset=10)}
    rows = list(group_rows(BLANK, {("T", "G"): {0: 4, 1: 2, 2: 0}, ("Deleted", "G"): {0: 5}}, ends))
    assert [(row.queue_id, row.messages, row.broker_offset, row.consumer_offset) for row in rows] == [
        (0, 6, 10, 4),
        (1, 3, 10, 2),  # five of those the group did not read are deleted
    ]
    ahead = group_rows(BLANK, {("T", "G"): {0: 99}}, ends)
    assert [row.messages for row in ahead] == [0]


def test_groups_are_chosen_by_name_or_pattern():
    table = {"T@orders-1": {0: 1}, "T@orders-2": {0: 1}, "T@billing": {0: 1}, "T@CID_RMQ_SYS_TRANS": {0: 1}, "odd": {}}
    table |= {"T@orders-1@broadcast": {0: 1}}
    assert {group for _, group in committed_offsets(table, ())} == {"orders-1", "orders-2", "billing"}
    assert {group for _, group in committed_offsets(table, ("orders-*",))} == {"orders-1", "orders-2"}
    assert {group for _, group in committed_offsets(table, ("billing",))} == {"billing"}


@pytest.fixture
def lagging(broker, make_topic):
    """(group, topic): ten messages in two queues, of which the group read three."""
    topic = make_topic(queues=2)
    for queue in (0, 1):
        topic.send(*[b"message"] * 5, queue=queue)
    group = f"G-{topic.name}"
    topic.create_group(group)
    options = ClusterOptions(name_servers=(broker.namesrv_address,))
    queues = Cluster(options).queues([topic.name])
    Cluster(options).commit(group, {queues[0]: 3, queues[1]: 0})
    return group, topic.name


def test_a_sample_has_the_messages_and_the_age_of_the_next_one(broker, lagging):
    group, topic = lagging
    options = ClusterOptions(name_servers=(broker.namesrv_address,))
    (brokers,) = broker_groups(Cluster(options).info())
    now_ms = time.time_ns() // 1_000_000 + 60_000
    rows = list(sample_brokers(brokers, options, (group,), lambda: now_ms))
    assert [(row.kind, row.group, row.topic) for row in rows] == [("group", group, topic)] * 2
    assert sum(row.messages for row in rows) == 7
    assert all(60 <= row.seconds < 120 for row in rows)


def test_a_silent_broker_or_one_without_master_is_a_row_with_the_reason():
    options = ClusterOptions(name_servers=(), tries=1, connect_timeout_ms=200)
    (row,) = sample_brokers(BrokerGroup("c", "a", {0: "127.0.0.1:1"}), options, (), lambda: 0)
    assert row.kind == "error" and "127.0.0.1:1" in row.error
    (row,) = sample_brokers(BrokerGroup("c", "a", {1: "127.0.0.1:1"}), options, (), lambda: 0)
    assert row.kind == "error" and "no master" in row.error


def test_a_broker_that_hangs_is_a_row_of_its_minute(monkeypatch):
    monkeypatch.setattr("twinlog.spark.jobs.lag.sample.TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # takes connections, and never answers
        address = f"127.0.0.1:{hangs.getsockname()[1]}"
        options = ClusterOptions(name_servers=(), tries=2)
        (row,) = sample_brokers(BrokerGroup("c", "a", {0: address}), options, (), lambda: 0)
    assert row.kind == "error" and f"{address} did not answer" in row.error and "within 50 ms" in row.error


def test_a_silent_replica_leaves_its_masters_groups_measured(broker, lagging):
    group, _ = lagging
    options = ClusterOptions(name_servers=(), tries=1, connect_timeout_ms=200)
    brokers = BrokerGroup("c", "a", {0: broker.broker_address, 1: "127.0.0.1:1", 2: broker.broker_address})
    rows = list(sample_brokers(brokers, options, (group,), lambda: 0))
    assert [(row.kind, row.broker_id) for row in rows] == [("group", 0), ("group", 0), ("error", 1), ("replica", 2)]
    assert (rows[-1].bytes, rows[-1].messages, rows[-1].seconds) == (0, 0, 0.0)


class FakeBroker:
    """Answers what a broker would; without a status it is Java's."""

    def __init__(self, end, status=None, records=()):
        self._end, self._status, self._records = end, status, dict(records)

    def status(self):
        return self._status and {"logEnd": self._end, **self._status}

    def runtime_info(self):
        return {"commitLogMaxOffset": str(self._end)}

    def records_at(self, offsets):
        return [self._records.get(offset) for offset in offsets]


def stored(offset, stored_ms):
    message = Message(topic="T", body=b"x", physical_offset=offset, store_timestamp=stored_ms)
    return offset, encode_message(message)


def test_a_twinlog_master_knows_how_far_its_replica_is():
    view = {
        "identity": "one",
        "observer": False,
        "lagBytes": 500,
        "lagMessages": 4,
        "lagMessagesExact": True,
        "lagMs": 1500,
    }
    master = FakeBroker(1000, {"replicas": [{**view, "identity": "other"}, view]})
    row = measure_replica(master, FakeBroker(500, {"instance": "one"}), BLANK, lambda: 0)
    assert (row.kind, row.bytes, row.messages, row.seconds, row.messages_exact) == ("replica", 500, 4, 1.5, True)
    assert (row.broker_offset, row.consumer_offset) == (1000, 500)


def test_a_java_master_is_asked_for_the_records_its_replica_lacks():
    size = len(stored(0, 0)[1])
    records = [stored(1000 + n * size, 5_000 + n) for n in range(3)]
    row = measure_replica(FakeBroker(1000 + 3 * size, None, records), FakeBroker(1000), BLANK, lambda: 9_000)
    assert (row.bytes, row.messages, row.messages_exact, row.seconds) == (3 * size, 3, True, 4.0)
    many = [stored(n * size, 5_000) for n in range(150)]
    row = measure_replica(FakeBroker(200 * size, None, many), FakeBroker(0), BLANK, lambda: 9_000)
    assert (row.messages, row.messages_exact) == (200, False)
    row = measure_replica(FakeBroker(1000), FakeBroker(990), BLANK, lambda: 0)  # amid a record
    assert (row.bytes, row.messages, row.seconds) == (10, None, None)


def test_brokers_are_grouped_by_their_names():
    data = BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1", 1: "h:2"})
    info = ClusterInfo(broker_addr_table={"a": data}, cluster_addr_table={"c": ["a"]})
    assert broker_groups(info) == [BrokerGroup("c", "a", {0: "h:1", 1: "h:2"})]


def test_rows_become_arrow_columns_even_when_there_are_none():
    assert as_batch([]).num_rows == 0
    row = as_batch([LagRow(kind="group", cluster="c", broker_name="a", group="G", topic="T", queue_id=1)]).to_pylist()[
        0
    ]
    assert (row["consumerGroup"], row["queueId"], row["lagSeconds"]) == ("G", 1, None)


def test_the_overview_has_the_worst_first_and_all_errors():
    rows = tuple(
        LagRow(
            kind="group", cluster="c", broker_name="a", group=name, topic="T", queue_id=queue, messages=n, seconds=1.0
        )
        for name, queue, n in (("slow", 0, 40), ("slow", 1, 60), ("quick", 0, 1))
    )
    replica = LagRow(kind="replica", cluster="c", broker_name="a", broker_id=1, bytes=10, messages=None)
    found = summarised((*rows, replica, LagRow(kind="error", cluster="c", broker_name="b", error="gone")))
    assert [row[0] for row in found] == ["group slow", "group quick", "replica 1", "error"]
    assert found[0][3:] == ("100", "?", "1.0")


# -- the plot ------------------------------------------------------------------------------------------


def svgs(text):
    parts = text.split("<svg ")[1:]
    return [ElementTree.fromstring("<svg " + part.split("</svg>")[0] + "</svg>") for part in parts]


def test_a_chart_has_axes_with_units_a_line_for_each_name_and_a_legend():
    lines = {f"group-{n}": [(60.0 * at, float(at * n)) for at in range(10)] for n in range(1, 4)}
    text = draw(Chart("Groups", "messages", lines))
    (picture,) = svgs(text)
    assert len(picture.findall("polyline")) == 3
    words = [one.text for one in picture.iter("text")]
    assert {"messages", "time, UTC", "00:00", "00:08", "0", "40"} <= set(words)
    assert text.count("<i style") == 3 and "group-3: 27" in text


def test_a_page_needs_nothing_else_and_is_legible_on_dark_ground():
    text = page("Lag <of> all", [Chart("One", "s", {"a&b": [(0.0, 1.0)]})], notes=["<b> failed"])
    assert "http" not in text and "<script" not in text and "prefers-color-scheme: dark" in text
    assert "Lag &lt;of&gt; all" in text and "a&amp;b" in text and "&lt;b&gt; failed" in text
    assert len(svgs(text)[0].findall("circle")) == 1
    assert "no samples yet" in page("Lag", [])


def test_a_plot_shows_how_many_samples_failed_and_where():
    assert error_note("broker-a", 2, "gone") == "2 samples of broker-a failed, the last one: gone"
    assert error_note("", 1, "no name server answers").startswith("1 sample of the name server failed")


def test_a_gap_in_the_samples_is_a_gap_in_the_line():
    points = [(0.0, 1.0), (60.0, 1.0), (600.0, 1.0), (660.0, 2.0)]
    assert [len(run) for run in unbroken(points, 150)] == [2, 2]


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=3000), st.integers(1, 700))
def test_thinning_keeps_the_highest_point(values, count_max):
    points = [(float(n), value) for n, value in enumerate(values)]
    kept = thinned(points, count_max)
    assert len(kept) <= count_max and max(v for _, v in kept) == max(values)


@given(st.floats(1e-3, 1e15))
def test_an_axis_ends_above_its_values_and_not_far_above(value):
    assert value * 0.99999 <= nice_ceiling(value) <= value * 2.5 + 1e-9


@given(st.floats(0, 2e9), st.floats(61, 1e8))
def test_a_time_axis_has_some_ticks_and_not_too_many(begin, length):
    assert 0 < len(time_ticks(begin, begin + length)) <= 40


def test_more_groups_than_colours_are_drawn_as_the_highest_of_the_others():
    lines = {f"g{n:02d}": [(0.0, float(n)), (60.0, 0.0)] for n in range(20)}
    shown = worst_first(lines, 8)
    assert list(shown)[:2] == ["g19", "g18"] and list(shown)[-1] == "highest of 12 others"
    assert shown["highest of 12 others"][0] == (0.0, 11.0)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (12_500, "12.5k"), (3e6, "3M"), (2.5e9, "2.5G")])
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_queues_and_brokers_of_a_group_are_summed_and_replicas_stay_apart():
    row = {"minute": NOON, "consumerGroup": "G", "brokerId": 0, "bytes": None, "seconds": 3.0}
    rows = [{**row, "kind": "group", "brokerName": name, "messages": 5} for name in "ab"]
    rows += [{**row, "kind": "replica", "brokerName": "a", "brokerId": n, "bytes": n, "messages": 1} for n in (1, 2)]
    messages, seconds, size, _ = charts_of(rows)
    assert messages.lines == {"G": [(NOON.timestamp(), 10.0)]} and seconds.lines["G"][0][1] == 3.0
    assert set(size.lines) == {"a/1", "a/2"}


@pytest.mark.parametrize("path", ["lag.png", "lag", "/no/such/place/lag.html"])
def test_a_plot_that_cannot_be_written_is_refused_before_sampling(path):
    with pytest.raises(BadOption):
        check_plot(path)


# -- the job -------------------------------------------------------------------------------------------


def test_a_moment_is_in_the_table_once_however_often_it_is_sampled(spark, broker, lagging, tmp_path):
    group, _ = lagging
    table, clock = str(tmp_path / "lag"), [NOON.timestamp() + 7]

    def sleep(seconds):
        clock[0] += seconds

    def run(**more):
        options = ClusterOptions(name_servers=(broker.namesrv_address,))
        job = LagJob(cluster=options, to=table, groups=(group,), **more)
        return lag(spark, job, clock=lambda: clock[0], sleep=sleep)

    assert run(for_s=70).samples == 2
    clock[0] = NOON.timestamp() + 30
    summary = run(for_s=0)  # the first minute again
    assert (summary.samples, summary.errors, len(summary.latest)) == (1, 0, 2)
    rows = spark.read.parquet(table).select("minute", "consumerGroup", "topic", "brokerName", "queueId", "lagMessages")
    found = [tuple(row) for row in rows.collect()]
    assert len(found) == len({row[:5] for row in found}) == 4
    moments = {row[0].astimezone(UTC) for row in found}
    assert moments == {NOON, NOON + timedelta(minutes=1)}
    picture = tmp_path / "lag.html"
    assert write_plot(spark, table, str(picture)) == 2
    assert group in picture.read_text()
    with pytest.raises(BadOption, match="not a table of samples"):
        write_plot(spark, str(tmp_path / "nothing"), str(picture))
    with pytest.raises(BadOption, match="name server"):
        lag(spark, LagJob(cluster=ClusterOptions(name_servers=()), to=table))
    with pytest.raises(BadOption, match="too often"):
        run(every_s=0.5)


def test_a_name_server_that_goes_away_is_a_row_and_not_the_end_of_the_samples(spark, broker, lagging, tmp_path):
    group, _ = lagging
    clock, table = [NOON.timestamp()], str(tmp_path / "lag")
    names = [broker.namesrv_address, "127.0.0.1:1", broker.namesrv_address]

    def job_at(number):
        options = ClusterOptions(name_servers=(names[number],), tries=1)
        return LagJob(cluster=options, to=table, groups=(group,), for_s=120)

    class Moving:
        """A job whose name server is another with each sample."""

        def __getattr__(self, name):
            return getattr(job_at(round((clock[0] - NOON.timestamp()) / 60)), name)

    summary = lag(spark, Moving(), clock=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    assert (summary.samples, summary.errors) == (3, 1)
    errors = spark.read.parquet(table).filter("kind = 'error'").select("minute", "error").collect()
    ((moment, error),) = [tuple(row) for row in errors]
    assert moment.astimezone(UTC) == NOON + timedelta(minutes=1) and "127.0.0.1:1 answers" in error
    with pytest.raises(NoNameServer):
        lag(spark, job_at(1), clock=lambda: clock[0])


def test_a_cluster_without_groups_and_replicas_has_an_empty_plot(spark, broker, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    words = ["lag", "--to", str(tmp_path / "lag"), "--plot", str(tmp_path / "lag.html")]
    done = run(capfd, *words, "-n", broker.namesrv_address, "-g", "nobody", "--once")
    assert done.exit_code == 0 and "no group has committed an offset" in done.stdout, done.stderr
    assert "There are no samples yet" in (tmp_path / "lag.html").read_text()
    again = run(capfd, *words, "--replot")
    assert again.exit_code == 1 and "is not a table of samples: take some first" in again.stderr


def test_the_command_samples_once_and_draws(spark, broker, lagging, tmp_path, monkeypatch, capfd):
    group, topic = lagging
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is shared with other tests
    words = ["lag", "--to", str(tmp_path / "lag"), "--plot", str(tmp_path / "lag.html")]
    done = run(capfd, *words, "-n", broker.namesrv_address, "-g", group, "--once", "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert {row["topic"] for row in document["latest"]} == {topic}
    assert "<svg" in (tmp_path / "lag.html").read_text()
    assert run(capfd, *words, "--replot").exit_code == 0
    assert run(capfd, *words, "--once", "--for", "5m", "-n", "h:1").exit_code == 1
    assert run(capfd, *words, "--for", "soon", "-n", "h:1").exit_code == 1


def test_moments_are_round():
    assert slot_of(125.5, 60) == 120 and slot_of(120, 60) == 120
