"""Metadata of two sides or two moments: rows of kind, key, field, left and right."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.jobs.audit.audit_stores import edit_json, make_master
from tests.spark.jobs.commands import run

from twinlog.metadata.offsets import OffsetsFile
from twinlog.metadata.tables import open_tables
from twinlog.replication.metadata.kinds import OFFSETS
from twinlog.replication.metadata.snapshots import DiffRow, diff, snapshot_of
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.endpoint import parse_endpoint
from twinlog.spark.jobs.metadata_diff.job import DiffJob, Moment, metadata_diff, parse_moment, snapshot_of_rows
from twinlog.spark.jobs.metadata_diff.snapshot import NoMetadata, read_snapshot
from twinlog.spark.live_broker import LiveBroker
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOMENT = Moment("/history", "broker-a", NOON)


@pytest.fixture
def two(tmp_path):
    make_master(tmp_path / "one", 3)
    return tmp_path / "one", shutil.copytree(tmp_path / "one", tmp_path / "two")


def compare(one, other, **more):
    sides = [parse_endpoint(str(home / "store")) for home in (one, other)]
    return metadata_diff(None, DiffJob(left=sides[0], right=sides[1], **more))


def test_equal_stores_have_no_rows(two):
    summary = compare(*two, versions=True)
    assert (summary.rows, summary.status) == ((), 0)


def test_rows_name_kind_key_field_and_both_values(two):
    one, other = two
    edit_json(other, "topics.json", lambda d: d["topicConfigTable"]["TopicA"].update(perm=2, order=True))
    edit_json(other, "consumerOffset.json", lambda d: d["offsetTable"].update({"TopicA@New": {"0": 5}}))
    edit_json(other, "delayOffset.json", lambda d: d["dataVersion"].update(counter=9))
    summary = compare(one, other)
    assert summary.status == 1
    assert summary.rows == (
        DiffRow("topics", "TopicA", "perm", "6", "2"),
        DiffRow("topics", "TopicA", "order", "false", "true"),
        DiffRow("offsets", "TopicA@New", "0", None, "5"),
    )
    assert [row.kind for row in compare(one, other, kinds=("offsets",)).rows] == ["offsets"]
    assert compare(one, other, versions=True).rows[-1] == DiffRow("dataVersion", "delayOffsets", "counter", "0", "9")


@pytest.mark.parametrize("spelling", ["offsets", "consumerOffset"])
def test_a_kind_is_accepted_in_both_spellings_and_shown_in_one(two, spelling):
    one, other = two
    edit_json(other, "consumerOffset.json", lambda d: d["offsetTable"].update({"TopicA@New": {"0": 5}}))
    edit_json(other, "topics.json", lambda d: d["topicConfigTable"]["TopicA"].update(perm=2))
    assert [row.kind for row in compare(one, other, kinds=(spelling,)).rows] == ["offsets"]


def test_an_unknown_kind_is_refused_with_the_nearest_name(two):
    with pytest.raises(BadOption, match="did you mean 'topics'"):
        compare(*two, kinds=("toppics",))


def test_what_one_side_lacks_entirely_is_one_row(two):
    one, other = two
    edit_json(one, "subscriptionGroup.json", lambda d: d["subscriptionGroupTable"].clear())
    (row,) = compare(one, other).rows
    assert (row.kind, row.key, row.field, row.left) == ("groups", "GroupA", "*", None)
    assert json.loads(row.right)["retryMaxTimes"] == "16"


def test_forbidden_topics_belong_to_their_group(two):
    one, other = two
    edit_json(other, "subscriptionGroup.json", lambda d: d.update(forbiddenTable={"GroupA": {"TopicA": 4}}))
    assert compare(one, other).rows == (DiffRow("groups", "GroupA", "forbidden", None, '{"TopicA":4}'),)


def test_a_version_that_one_side_does_not_keep_is_not_a_difference():
    without = {"dataVersion": {}, "offsets": {}}
    with_one = snapshot_of(
        OFFSETS, open_tables(None, 5).offsets.decode_file(b'{"dataVersion":{"counter":1},"offsetTable":{}}')
    )
    assert diff(without, with_one) == []
    assert snapshot_of(OFFSETS, OffsetsFile(offset_table={})) == {"offsets": {}}


def test_java_files_are_read_like_ours(two):
    one, other = two
    (other / "store" / "config" / "delayOffset.json").write_text(
        '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},\n"offsetTable":{3:17\n}\n}'
    )
    assert [row.kind for row in compare(one, other, versions=True).rows] == ["dataVersion"]


def test_a_live_broker_returns_the_same_as_its_files_and_pages_are_gathered(broker, make_topic, monkeypatch):
    names = [make_topic().name for _ in range(3)]
    side = parse_endpoint(broker.broker_address)
    whole = read_snapshot(side)
    assert set(names) <= whole["topics"].keys()
    monkeypatch.setattr("twinlog.replication.metadata.table_pages.PAGE_ROWS", 2)
    assert diff(read_snapshot(side), whole) == []
    assert isinstance(side.broker, LiveBroker)


def test_an_endpoint_that_cannot_be_read_is_an_error_with_the_reason(tmp_path):
    with pytest.raises(NoMetadata, match="no directory config"):
        read_snapshot(parse_endpoint(str(tmp_path)))
    with pytest.raises(BadOption, match="neither a store directory nor host:port"):
        parse_endpoint("broker-a")
    options = ClusterOptions(name_servers=(), tries=1, connect_timeout_ms=200)
    assert parse_endpoint("[::1]:10911", options).store is None
    (tmp_path / "config").mkdir()
    assert read_snapshot(parse_endpoint(str(tmp_path)))["topics"] == {}


# -- moments -------------------------------------------------------------------------------------------


def row(kind, key, value, broker="broker-a"):
    return {"broker": broker, "kind": kind, "key": key, "value": msgspec.json.encode(value).decode()}


def test_rows_of_a_history_become_the_same_snapshot_as_the_tables(two):
    one, _ = two
    tables = open_tables(one / "store" / "config", 0)
    tables.load()
    rows = [row("topics", name, value) for name, value in tables.topics.rows.items()]
    rows += [row("groups", name, value) for name, value in tables.groups.rows.items()]
    rows += [row("offsets", key, value) for key, value in tables.offsets.rows.items()]
    rows += [row("delayOffsets", str(level), offset) for level, offset in tables.delay_offsets.rows.items()]
    rows += [row("requestModes", "TopicA", {"GroupA": {"mode": "POP"}}), row("forbidden", "GroupA", {"TopicA": 4})]
    now = read_snapshot(parse_endpoint(str(one / "store")))
    assert diff(now, snapshot_of_rows(rows, MOMENT)) == [DiffRow("groups", "GroupA", "forbidden", None, '{"TopicA":4}')]


def test_a_history_of_several_brokers_wants_a_name():
    rows = [row("delayOffsets", "1", 5, broker=name) for name in ("a", "b")]
    with pytest.raises(BadOption, match=r"several brokers \(a, b\)"):
        snapshot_of_rows(rows, MOMENT)
    with pytest.raises(BadOption, match="not readable"):
        snapshot_of_rows([{**row("topics", "T", {}), "value": "{"}], MOMENT)


def test_moments_are_iso_times_and_utc_without_a_zone(tmp_path):
    assert parse_moment("2026-11-15T12:00", str(tmp_path), None).when == NOON
    assert parse_moment("2026-11-15T13:00+01:00", str(tmp_path), None).when == NOON
    with pytest.raises(BadOption, match="not a moment"):
        parse_moment("last Tuesday", str(tmp_path), None)
    with pytest.raises(BadOption, match="no directory"):
        parse_moment("2026-11-15", str(tmp_path / "nowhere"), None)
    with pytest.raises(BadOption, match="not a history"):
        metadata_diff(None, DiffJob(left=MOMENT, right=MOMENT))


def write_history(path):
    """As `pipeline sync` keeps it: a topic that gets more queues, and a group that goes."""
    config, group = TopicConfig(topic_name="T"), SubscriptionGroupConfig(group_name="G")
    wider = msgspec.structs.replace(config, read_queue_nums=32)
    old, new, third = (msgspec.json.encode(one).decode() for one in (config, wider, group))
    rows = [
        ("broker-a", "topics", "T", NOON, None, old, "r", 1),
        ("broker-a", "groups", "G", NOON, None, third, "r", 2),
        ("broker-a", "topics", "T", NOON + timedelta(minutes=5), old, new, "r", 3),
        ("broker-a", "topics", "U", NOON + timedelta(minutes=5), None, new, "r", 4),
        ("broker-a", "topics", "U", NOON + timedelta(minutes=5), new, old, "r", 5),
        ("broker-a", "groups", "G", NOON + timedelta(minutes=6), third, None, "r", 6),
        ("broker-b", "groups", "H", NOON + timedelta(hours=1), None, third, "s", 1),
    ]
    names = ("broker", "kind", "key", "seenAt", "oldValue", "newValue", "replica", "sequence")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    version = pa.array([{"stateVersion": 0, "timestamp": 1, "counter": 1}] * len(rows))
    (path / "changes").mkdir()
    for number, part in enumerate((table.append_column("version", version)).to_batches(max_chunksize=3)):
        pq.write_table(pa.Table.from_batches([part]), path / "changes" / f"{9 - number}.parquet")


def test_two_moments_of_a_history_are_compared(spark, tmp_path, monkeypatch, capfd):
    write_history(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is shared with other tests
    words = ["metadata-diff", "--history", str(tmp_path), "--json"]
    done = run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:10", "--to", str(tmp_path / "rows"))
    assert done.exit_code == 1, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [(one["kind"], one["key"], one["field"], one["left"]) for one in rows][:2] == [
        ("topics", "T", "readQueueNums", "16"),
        ("topics", "U", "*", None),
    ]
    assert json.loads(rows[1]["right"])["readQueueNums"] == "16"
    assert [(one["kind"], one["field"], one["right"]) for one in rows][2:] == [("groups", "*", None)]
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3
    assert run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:02", "--local-below", "0").exit_code == 0
    here = run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:10")
    assert json.loads(here.stdout.splitlines()[-1])["rows"] == rows
    assert (here.exit_code, here.stderr.count("without Spark")) == (1, 1)


def test_a_short_history_is_read_without_spark_and_a_wrong_one_is_an_error(tmp_path, capfd):
    words = ["metadata-diff", "--history", str(tmp_path), "--json"]
    not_yet = run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:02")
    assert (not_yet.exit_code, "is not a history of metadata" in not_yet.stderr) == (2, True)
    write_history(tmp_path)
    assert run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:02").exit_code == 0
    assert run(capfd, *words, "2026-11-15T11:01", "2026-11-15T12:02").exit_code == 2
    several = run(capfd, *words, "2026-11-15T12:01", "2026-11-15T13:02")
    assert "several brokers (broker-a, broker-b)" in several.stderr
    one = run(capfd, *words, "2026-11-15T12:10", "2026-11-15T13:02", "--broker", "broker-a")
    assert (one.exit_code, json.loads(one.stdout.splitlines()[-1])["rows"]) == (0, [])
    since_ms = round(NOON.timestamp() * 1000) + 90_000
    (tmp_path / "changes" / "8.parquet").rename(tmp_path / "changes" / f"8-b-since{since_ms}.parquet")
    dropped = run(capfd, *words, "2026-11-15T12:01", "2026-11-15T12:02")
    assert (dropped.exit_code, "the history before it was dropped" in dropped.stderr) == (2, True)
    (tmp_path / "changes" / "9.parquet").write_bytes(b"not Parquet")
    assert "is not a history" in run(capfd, *words, "2026-11-15T12:02", "2026-11-15T12:03").stderr


def test_the_command_needs_no_spark_for_two_endpoints_and_its_exit_status_is_the_result(two, broker, capfd):
    one, other = (str(home / "store") for home in two)
    equal = run(capfd, "metadata-diff", one, other)
    assert (equal.exit_code, "are equal" in equal.stdout) == (0, True), equal.stderr
    different = run(capfd, "metadata-diff", one, broker.broker_address, "--kind", "topics")
    assert different.exit_code == 1 and "TopicA" in different.stdout
    assert "…" not in different.stdout, "values are shown whole"
    assert run(capfd, "metadata-diff", one, "127.0.0.1:1").exit_code == 2
    assert run(capfd, "metadata-diff", one, other, "--kind", "toppics").exit_code == 2
    assert run(capfd, "metadata-diff", one, other, "--broker", "a").exit_code == 2
