"""A replica's metadata becomes its master's, from Twinlog's changes and from Java's tables."""

import asyncio
import contextlib
import json
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.vectors import VECTORS

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.replication.master import metadata_changes
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.metadata.delta import Held, decode_changes, decode_delta
from twinlog.replication.metadata.kinds import KIND_BY_NAME, table_of
from twinlog.replication.replica import metadata_sync_service
from twinlog.replication.replica.metadata_follower import Follower
from twinlog.replication.replica.metadata_status import reason_to_skip
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.settings.replication import ReplicationSettings
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.command import Command
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.twinlog_codes import TwinlogCode

KINDS = tuple(KIND_BY_NAME)


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


class Twin:
    """Two sets of tables, and the rounds that make the second one follow the first."""

    def __init__(self) -> None:
        self.master, self.replica = open_tables(None, 1), open_tables(None, 2)
        self.replica.offsets.follows_master = True
        self.followers = {kind: Follower(kind) for kind in KINDS}
        self.bytes_moved = 0

    def round(self, rows_max: int = 10_000) -> int:
        """How many answers it took until nothing was left to tell."""
        answers = 0
        for kind, follower in self.followers.items():
            follower.begin_round(table_of(self.replica, kind))
        while self.page(rows_max):
            answers += 1
        return answers

    def page(self, rows_max: int) -> bool:
        """Whether the master had something to tell."""
        held = {kind: str(follower.held) for kind, follower in self.followers.items()}
        body = encode_changes(self.master, held, rows_max)
        self.bytes_moved += len(body or b"")
        for kind, raw in decode_changes(body).items():
            self.followers[kind].take(decode_delta(kind, raw), table_of(self.replica, kind))
        return body is not None

    def assert_equal(self) -> None:
        for kind in KINDS:
            ours, theirs = table_of(self.master, kind), table_of(self.replica, kind)
            assert ours.rows == theirs.rows, kind
            if kind != "requestModes":
                assert ours.version == theirs.version, kind
        assert self.master.groups.forbidden == self.replica.groups.forbidden


def test_a_first_round_brings_everything_and_the_next_nothing():
    twin = Twin()
    for number in range(25):
        twin.master.topics.put(f"T{number}", topic(f"T{number}"), 10 + number)
    twin.master.groups.put("G", SubscriptionGroupConfig(group_name="G"), 40)
    twin.master.groups.set_readable("G", "T1", False, 41)
    twin.master.offsets.commit("G", "T1", 0, 7, 42)
    twin.master.delay_offsets.update(3, 9, 43)
    assert twin.round(rows_max=10) > 2
    twin.assert_equal()
    before = twin.bytes_moved
    assert twin.round() == 0 and twin.bytes_moved == before


def test_one_change_among_many_costs_one_row():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(5000)}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.master.topics.put("T77", topic("T77", 8), 20)
    assert twin.round() == 1 and twin.bytes_moved - before < 600
    twin.assert_equal()


def test_what_the_master_no_longer_has_goes_also_after_its_restart():
    twin = Twin()
    twin.master.topics.put_all({name: topic(name) for name in "ABC"}, 10)
    twin.round()
    twin.master.topics.remove("B", 11)
    twin.round()
    twin.assert_equal()
    reborn = open_tables(None, 1)
    reborn.topics.put("C", topic("C"), 12)
    twin.master = reborn
    twin.round()
    assert set(twin.replica.topics.rows) == {"C"}


def test_readers_never_see_a_half_filled_table_while_pages_arrive():
    twin = Twin()
    twin.replica.topics.put("OLD", topic("OLD"), 1)
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(30)}, 10)
    sizes = {len(twin.replica.topics)}
    twin.replica.topics.on_change.append(lambda: sizes.add(len(twin.replica.topics)))
    twin.round(rows_max=7)
    assert sizes == {1, 30}


def test_a_topic_that_is_deleted_between_two_pages_of_the_whole_table_goes_on_the_replica_too():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(9)}, 10)
    twin.page(rows_max=4)
    twin.master.topics.remove("T0", 11)
    twin.round(rows_max=4)
    twin.assert_equal()


@pytest.mark.parametrize("both", [True, False])
def test_a_row_that_was_changed_on_the_replica_only_is_the_masters_again_after_two_rounds(both):
    twin = Twin()
    twin.master.topics.put_all({name: topic(name) for name in "ABC"}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.replica.topics.remove("A", 11)
    twin.replica.topics.put("X", topic("X"), 12)
    twin.replica.groups.set_readable("G", "A", False, 13)
    if both:  # a client told the master as well
        twin.master.topics.put("X", topic("X"), 14)
    twin.round()
    twin.round()
    twin.assert_equal()
    moved = twin.bytes_moved
    twin.round()
    assert moved > before and twin.bytes_moved == moved


def test_a_row_that_a_client_made_on_both_brokers_costs_one_row():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(1000)}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.replica.topics.put("X", topic("X"), 12)
    twin.master.topics.put("X", topic("X"), 13)
    twin.round()
    twin.round()
    assert twin.bytes_moved - before < 600
    twin.assert_equal()


def test_rows_with_many_queues_come_in_pages_that_fit_a_frame():
    twin = Twin()
    row = {queue: 10**12 + queue for queue in range(1024)}
    twin.master.offsets.adopt({f"T{n}@G": row for n in range(900)}, twin.master.offsets.version)
    held = {kind: str(follower.held) for kind, follower in twin.followers.items()}
    assert len(encode_changes(twin.master, held) or b"") < 4 * 1024 * 1024
    twin.round()
    twin.assert_equal()


def test_offsets_that_moved_on_while_the_master_was_dead_are_kept_although_it_had_saved_older_ones():
    twin = Twin()
    twin.master.offsets.commit("G", "T", 0, 50, 10)
    twin.round()
    twin.replica.offsets.commit("G", "T", 0, 100, 11)
    twin.master = open_tables(None, 12)
    twin.master.offsets.commit("G", "T", 0, 45, 12)  # what it had saved before it was killed
    twin.round()
    assert twin.replica.offsets.ahead() == {"T@G": {0: 100}}
    twin.master.offsets.commit("G", "T", 0, 20, 13)
    twin.round()
    assert twin.replica.offsets.of("G", "T") == {0: 20}, "within one life a lower value is a reset"


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "commit", "delay", "page", "stray", "round", "reborn"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 7))
def test_any_history_of_changes_leaves_the_replica_equal(history, rows_max):
    twin, now_ms = Twin(), 100
    for what, number, value in history:
        now_ms += 1
        master: MetadataTables = twin.master
        if what == "put":
            master.topics.put(f"T{number}", topic(f"T{number}", value), now_ms)
        elif what == "remove":
            master.topics.remove(f"T{number}", now_ms)
        elif what == "commit":
            master.offsets.commit(f"G{number}", "T", 0, value, now_ms)
        elif what == "delay":
            master.delay_offsets.update(number + 1, value, now_ms)
        elif what == "page":
            twin.page(rows_max)
        elif what == "stray":
            twin.replica.topics.put(f"T{number}", topic(f"T{number}", value), now_ms)
        elif what == "round":
            twin.round(rows_max)
        else:  # the master restarts with what it had on disk
            again = open_tables(None, now_ms)
            again.topics.adopt(dict(master.topics.rows), master.topics.version)
            again.offsets.adopt(dict(master.offsets.rows), master.offsets.version)
            again.delay_offsets.adopt(dict(master.delay_offsets.rows), master.delay_offsets.version)
            twin.master = again
    twin.round(rows_max)
    twin.round(rows_max)
    assert twin.replica.topics.rows == twin.master.topics.rows
    assert twin.replica.topics.version == twin.master.topics.version
    assert twin.replica.offsets.rows == twin.master.offsets.rows
    assert twin.replica.delay_offsets.rows == twin.master.delay_offsets.rows


@pytest.mark.parametrize("text", ["", "x", "e:", "e:-1", "e:1x"])
def test_a_holding_that_says_no_revision_is_refused(text):
    with pytest.raises(BodyError, match="revision"):
        encode_changes(open_tables(None, 1), {"topics": text})


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"topics":{"epoch":1}}', b"\xff", b'{"topics":' + b"[" * 100_000])
def test_changes_that_are_none_are_refused(body):
    with pytest.raises(BodyError):
        decode_delta("topics", decode_changes(body)["topics"])


@given(
    st.sampled_from(["", "own", "other", "a:b", "x" * 65, "\n"]) | st.text(max_size=8),
    st.sampled_from([-(2**63), -1, 0, 1, 10**17, 10**18, 2**63 - 1]),
)
def test_a_page_of_any_epoch_and_revision_is_refused_or_followed_by_good_rounds(epoch, revision):
    twin = Twin()
    twin.master.topics.put("T", topic("T"), 1)
    twin.round()
    epoch = twin.master.topics.epoch if epoch == "own" else epoch
    page = {"epoch": epoch, "revision": revision, "dataVersion": {}, "changed": {}, "removed": ["T"]}
    raw = msgspec.Raw(msgspec.json.encode(page))
    with contextlib.suppress(BodyError):
        twin.followers["topics"].take(decode_delta("topics", raw), twin.replica.topics)
    twin.master.topics.put("U", topic("U"), 2)
    for _ in range(3):
        twin.round()
    assert "U" in twin.replica.topics.rows


class BadMaster:
    """A Twinlog master that answers with whatever a test wants."""

    def __init__(self, tables: MetadataTables) -> None:
        self.tables = tables
        self.spoilt: dict[str, object] = {}
        self.asked = 0

    def answer(self, request):
        self.asked += 1
        held = {kind: text for kind, text in request.fields.items() if kind in KINDS}
        body = encode_changes(self.tables, held, metadata_changes.ROWS_MAX)
        return request.reply(body=json.dumps({**json.loads(body or b"{}"), **self.spoilt}).encode())


@pytest.fixture
async def bad():
    master = BadMaster(open_tables(None, 1))
    master.tables.topics.put("A", topic("A"), 2)
    master.tables.groups.put("G", SubscriptionGroupConfig(group_name="G"), 2)
    server, pool = Server({TwinlogCode.METADATA_CHANGES: master.answer}), ConnectionPool()
    await server.start("127.0.0.1", 0)
    master.replica = open_tables(None, 5)
    master.sync = MetadataSyncService(
        lambda: ReplicationSettings(), master.replica, pool, own_address="127.0.0.1:1", clock_ms=lambda: 99
    )
    master.sync.master_is_at(f"127.0.0.1:{server.port}")
    yield master
    await pool.close()
    await server.stop()


@pytest.mark.parametrize("raised", [0, 2])
async def test_carried_offsets_are_logged_only_when_the_master_took_some(bad, raised, caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr(bad.replica.offsets, "ahead", lambda: {"T@G": {0: 5, 1: 6}})

    class Master:
        async def request(self, code, **more):
            return Command(0, 1, fields={"raised": str(raised)})

    await bad.sync._carry_back(Master())
    assert ("carried back" in caplog.text) is bool(raised)


VERSION = {"stateVersion": 0, "timestamp": 1, "counter": 1}
HEAD = {"epoch": "e", "revision": 7, "dataVersion": VERSION}


@pytest.mark.parametrize(
    ("kind", "delta", "says"),
    [
        ("topics", 5, "not readable"),
        ("topics", {**HEAD, "changed": {"A": {"topicName": "B"}}}, "is one of 'B'"),
        ("groups", {**HEAD, "changed": {"G": []}}, "not readable"),
        ("offsets", {**HEAD, "changed": {"T@G": {"x": 1}}}, "not readable"),
        ("delayOffsets", {**HEAD, "changed": {"one": 1}}, "no number"),
        ("delayOffsets", {**HEAD, "whole": True, "changed": {"one": 1}}, "no number"),
        ("offsets", {**HEAD, "more": True}, "none of it came"),
    ],
)
async def test_a_kind_that_a_twinlog_master_spoils_is_counted_and_the_others_go_on(bad, kind, delta, says):
    bad.spoilt = {kind: delta}
    async with asyncio.timeout(5):
        assert await bad.sync.sync()
    status = bad.sync.status.kinds
    assert {name: row.failures for name, row in status.items() if row.failures} == {kind: 1}
    assert says in status[kind].error
    assert kind == "topics" or "A" in bad.replica.topics
    assert kind == "groups" or "G" in bad.replica.groups
    bad.spoilt = {}
    assert await bad.sync.sync() and status[kind].error == ""
    assert bad.replica.topics.rows == bad.tables.topics.rows and bad.replica.groups.rows == bad.tables.groups.rows


def lines_of_changes(caplog) -> list[str]:
    """The lines about changes since the last call."""
    lines = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    caplog.clear()
    return [line for line in lines if line.startswith("metadata changed")]


async def test_a_round_that_changed_something_is_one_line_a_kind_with_both_versions(bad, caplog):
    caplog.set_level("INFO")
    bad.tables.topics.put("B", topic("B"), 3)
    await bad.sync.sync()
    master = f"master={bad.sync._master}"
    assert lines_of_changes(caplog) == [
        f"metadata changed kind=topics {master} before=0:5:0 now=0:3:2",
        f"metadata changed kind=offsets {master} before=0:5:0 now=0:1:0",
        f"metadata changed kind=delayOffsets {master} before=0:5:0 now=0:1:0",
        f"metadata changed kind=groups {master} before=0:5:0 now=0:2:1",
        f"metadata changed kind=requestModes {master} before=0:5:0 now=0:1:0",
    ]
    await bad.sync.sync()
    assert lines_of_changes(caplog) == []
    bad.tables.groups.put("H", SubscriptionGroupConfig(group_name="H"), 8)
    bad.tables.offsets.commit("G", "A", 0, 7, 8)  # rows move, and the version only once in 500 of them
    await bad.sync.sync()
    assert lines_of_changes(caplog) == [
        f"metadata changed kind=offsets {master} before=0:1:0 now=0:1:0",
        f"metadata changed kind=groups {master} before=0:2:1 now=0:8:2",
    ]


async def test_a_table_that_comes_in_pages_is_one_line(bad, caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr("twinlog.replication.master.metadata_changes.ROWS_MAX", 10)
    await bad.sync.sync()
    lines_of_changes(caplog)
    bad.tables.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(35)}, 9)
    asked = bad.asked
    await bad.sync.sync()
    assert bad.asked > asked + 2
    assert [line.split()[2] for line in lines_of_changes(caplog)] == ["kind=topics"]


def test_a_master_that_is_this_broker_is_not_asked():
    assert reason_to_skip(None, "a:1") == "no master is known yet"
    assert "a:1" in (reason_to_skip("a:1", "a:1") or "")
    assert reason_to_skip("b:1", "a:1") is None


# -- a Java master, from recorded answers ------------------------------------------------------------

RECORDED = {21: "21", 43: "43", 45: "45", 201: "201", 402: "402"}


def recorded(code: int) -> bytes:
    (path,) = (VECTORS / "ha" / "metadata").glob(f"{code}*.body.json.txt")
    return path.read_bytes()


class JavaMaster:
    """Answers metadata requests with what a real 5.3.3 master sent."""

    def __init__(self) -> None:
        self.bodies = {code: recorded(code) for code in RECORDED}
        self.totals: dict[int, dict[str, str]] = {}
        self.later: dict[int, list[bytes]] = {}  # the pages after the first
        self.asked: list[tuple[str, int]] = []
        self.giant = 0  # the code that is answered with more than a frame may hold

    async def start(self) -> None:
        self.main = Server({code: self._answer("main", code) for code in RECORDED})
        self.vip = Server({code: self._answer("vip", code) for code in RECORDED})
        for _ in range(50):  # the second port is two below the first
            await self.main.start("127.0.0.1", 0)
            try:
                await self.vip.start("127.0.0.1", self.main.port - 2)
                return
            except OSError:
                await self.main.stop()

    def _answer(self, port: str, code: int):
        def answer(request):
            self.asked.append((port, code))
            body = self.bodies[code]
            if self.later.get(code) and (request.fields or {}).get("groupSeq", "0") != "0":
                body = self.later[code].pop(0)
            if code == self.giant:
                return [(17 << 20).to_bytes(4, "big") + bytes(4)]
            if body and code in self.totals:
                return request.reply(body=body, fields=self.totals[code])
            return request.reply(body=body) if body else request.reply(1, "No such thing in this broker")

        return answer

    async def stop(self) -> None:
        await self.main.stop()
        await self.vip.stop()


@pytest.fixture
async def java(tmp_path):
    master = JavaMaster()
    await master.start()
    master.tables = open_tables(tmp_path, 5)
    master.pool = ConnectionPool()
    master.sync = MetadataSyncService(
        lambda: ReplicationSettings(), master.tables, master.pool, own_address="127.0.0.1:1", clock_ms=lambda: 99
    )
    master.sync.master_is_at(f"127.0.0.1:{master.main.port}")
    yield master
    await master.pool.close()
    await master.stop()


async def test_a_java_master_is_asked_on_the_ports_and_in_the_order_of_a_java_slave(java, tmp_path):
    await java.sync.sync()
    assert java.asked == [("vip", 21), ("main", 43), ("main", 45), ("main", 201), ("main", 402)]
    said = loads(java.bodies[21])
    assert (
        json.loads((tmp_path / "topics.json").read_text())["topicConfigTable"].keys() == said["topicConfigTable"].keys()
    )
    assert java.tables.topics.version.counter == said["dataVersion"]["counter"]
    assert {str(k): v for k, v in java.tables.delay_offsets.rows.items()} == loads(java.bodies[45])["offsetTable"]


async def test_the_tables_of_a_java_master_are_read_beside_the_loop(java, monkeypatch):
    decode, loop_thread, threads = metadata_sync_service._decode_page, threading.get_ident(), []

    def noting(*args):
        threads.append(threading.get_ident())
        return decode(*args)

    monkeypatch.setattr(metadata_sync_service, "_decode_page", noting)
    await java.sync.sync()
    assert len(threads) >= 4 and loop_thread not in threads


async def test_an_unchanged_java_master_costs_no_write(java, tmp_path):
    await java.sync.sync()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    await java.sync.sync()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


async def test_what_only_java_acts_on_is_adopted_from_a_java_master_as_it_is(java):
    attributes = {"cleanup.policy": "COMPACTION", "reserve.time": "60000", "message.type": "LITE", "not.yet": "known"}
    topics = {"A": {"topicName": "A", "attributes": attributes}}
    java.bodies[21] = json.dumps({"dataVersion": {"counter": 9}, "topicConfigTable": topics}).encode()
    mode = {"topic": "A", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 3}
    java.bodies[402] = json.dumps({"messageRequestModeMap": {"A": {"G": mode}}}).encode()
    await java.sync.sync()
    assert java.tables.topics.get("A").attributes == attributes
    assert java.tables.request_modes.mode_of("A", "G").mode == "POP"


async def test_changes_of_a_java_master_are_lines_and_an_idle_round_is_none(java, caplog):
    caplog.set_level("INFO")
    await java.sync.sync()
    assert lines_of_changes(caplog)[0].split()[2] == "kind=topics"
    await java.sync.sync()
    assert lines_of_changes(caplog) == []
    before = java.tables.groups.version
    java.bodies[201] = b'{"dataVersion":{"counter":9,"timestamp":7},"subscriptionGroupTable":{"G":{"groupName":"G"}}}'
    await java.sync.sync()
    (line,) = lines_of_changes(caplog)
    assert line.endswith(f"before=0:{before.timestamp}:{before.counter} now=0:7:9") and "kind=groups" in line


@pytest.mark.parametrize("body", [b"", b"{", b'{"offsetTable":[]}', b'{"topicConfigTable":{}}', b"null"])
async def test_one_broken_kind_is_counted_and_the_others_go_on(java, body):
    java.bodies[43] = body
    await java.sync.sync()
    assert java.sync.status.kind("offsets").failures == 1 and java.sync.status.kind("offsets").error
    assert java.sync.status.kind("groups").synced_ms == 99 and len(java.tables.topics) > 0


@pytest.mark.parametrize("code", [21, 43])
async def test_an_answer_larger_than_a_frame_fails_its_own_kind_only(java, code):
    java.giant = code
    await java.sync.sync()
    failed = {name for name, status in java.sync.status.kinds.items() if status.failures}
    assert failed == {"topics" if code == 21 else "offsets"}
    assert len(java.tables.groups) > 0


async def test_a_java_masters_pages_of_groups_bring_what_each_of_them_may_not_read(java):
    def page(name):
        forbidden = {name: {"T": 4}}
        table = {name: {"groupName": name}}
        return json.dumps(
            {"dataVersion": {"counter": 9}, "forbiddenTable": forbidden, "subscriptionGroupTable": table}
        ).encode()

    java.bodies[201], java.later[201] = page("G"), [page("H")]
    java.totals[201] = {"totalGroupNum": "2"}
    await java.sync.sync()
    assert set(java.tables.groups.rows) == {"G", "H"}
    assert not java.tables.groups.may_read("G", "T") and not java.tables.groups.may_read("H", "T")


@pytest.mark.parametrize("total", ["3", "100000"])
async def test_a_java_master_that_promises_more_rows_than_it_gives_takes_nothing_away(java, total):
    java.tables.topics.put("MINE", topic("MINE"), 6)
    java.bodies[21] = json.dumps(
        {"dataVersion": {"counter": 9}, "topicConfigTable": {name: {"topicName": name} for name in "AB"}}
    ).encode()
    java.totals[21] = {"totalTopicNum": total}
    async with asyncio.timeout(5):
        await java.sync.sync()
    assert f"of {total} rows only 2 came" in java.sync.status.kind("topics").error
    assert "MINE" in java.tables.topics and len(java.tables.groups) > 0


async def test_a_master_that_is_gone_is_counted_for_every_kind(java):
    await java.stop()
    java.sync.master_is_at("127.0.0.1:9")
    await java.sync.sync()
    assert {status.failures for status in java.sync.status.kinds.values()} == {1}
    await java.main.start("127.0.0.1", 0)


def test_a_holding_reads_back_from_its_text():
    assert str(Held("e", 4, whole=True)) == "e:4:whole" and str(Held("e", 4)) == "e:4"
