"""A replica's metadata becomes its master's, from Twinlog's changes and from Java's tables."""

import asyncio
import json
import threading

import pytest
from tests.wire.vectors import VECTORS

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.replication.master import metadata_changes
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.metadata.kinds import KIND_BY_NAME
from twinlog.replication.replica import metadata_sync_service
from twinlog.replication.replica.metadata_status import reason_to_skip
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.settings.replication import ReplicationSettings
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.command import Command
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.twinlog_codes import TwinlogCode

KINDS = tuple(KIND_BY_NAME)


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


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
    master.handlers = {TwinlogCode.METADATA_CHANGES: master.answer}
    server, pool = Server(master.handlers), ConnectionPool()
    await server.start("127.0.0.1", 0)
    master.replica = open_tables(None, 5)
    master.sync = MetadataSyncService(
        lambda: ReplicationSettings(), master.replica, pool, own_address="127.0.0.1:1", clock_ms=lambda: 99
    )
    master.sync.master_is_at(f"127.0.0.1:{server.port}")
    yield master
    await pool.close()
    await server.stop()


async def test_a_master_that_does_not_answer_is_asked_again_over_a_new_connection(bad, monkeypatch):
    monkeypatch.setattr(metadata_sync_service, "_TIMEOUT_MS", 50)
    answers, pool, master = bad.answer, bad.sync._pool, bad.sync._master
    never = asyncio.Event()

    async def mute(request):
        await never.wait()

    bad.handlers[TwinlogCode.METADATA_CHANGES] = mute
    assert not await bad.sync.sync()
    assert pool.current(master) is None
    bad.handlers[TwinlogCode.METADATA_CHANGES] = answers
    monkeypatch.undo()
    assert await bad.sync.sync()


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
        ("topics", {**HEAD, "changed": {"A": {"topicName": "B"}}}, "has the name 'B'"),
        ("groups", {**HEAD, "changed": {"G": []}}, "not readable"),
        ("offsets", {**HEAD, "changed": {"T@G": {"x": 1}}}, "not readable"),
        ("delayOffsets", {**HEAD, "changed": {"one": 1}}, "not a number"),
        ("delayOffsets", {**HEAD, "whole": True, "changed": {"one": 1}}, "not a number"),
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
    decode, loop_thread, threads = metadata_sync_service.decode_answer, threading.get_ident(), []

    def noting(*args):
        threads.append(threading.get_ident())
        return decode(*args)

    monkeypatch.setattr(metadata_sync_service, "decode_answer", noting)
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
