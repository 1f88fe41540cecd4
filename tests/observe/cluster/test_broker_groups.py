"""One picture of replication, from Twinlog brokers that tell everything and Java brokers that tell little."""

import asyncio

from twinlog.cli.replication.report import report_of
from twinlog.cli.shared.report import plain
from twinlog.client import BrokerRefused, NetError
from twinlog.observe.cluster.broker_groups import LagFacts, ask_groups, gather_groups, registered_groups
from twinlog.wire.bodies import BrokerData, ClusterInfo, HaConnectionInfo, HaRuntimeInfo
from twinlog.wire.message import Message, encode_message

NOW = 1_700_000_010_000


def record(offset: int) -> bytes:
    """A record of 100 or so bytes that was stored at `offset`, 4 s ago."""
    return encode_message(
        Message(
            topic="T",
            body=b"x",
            physical_offset=offset,
            store_timestamp=NOW - 4_000,
            born_host=("127.0.0.1", 1),
            store_host=("127.0.0.1", 1),
        )
    )


SIZE = len(record(0))


class FakeAdmin:
    """A cluster of one broker name: addresses by id, Twinlog's documents, and the log ends of Java brokers."""

    def __init__(self, documents: dict[str, dict], java_ends: dict[str, int]) -> None:
        self._documents, self._java_ends = documents, java_ends

    async def cluster_info(self) -> ClusterInfo:
        addresses = {0: "master:1", 1: "replica:1"}
        broker = BrokerData(cluster="C", broker_name="b", broker_addrs=addresses)
        return ClusterInfo(broker_addr_table={"b": broker}, cluster_addr_table={"C": ["b"]})

    async def replication_status(self, address: str) -> dict | None:
        return self._documents.get(address)

    async def runtime_info(self, address: str) -> dict[str, str]:
        return {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self._java_ends[address])}

    async def ha_status(self, address: str):
        raise BrokerRefused(907, 3, "request type 907 not supported", address)

    async def log_record(self, address: str, physical_offset: int) -> bytes | None:
        return record(physical_offset) if physical_offset % SIZE == 0 else None


def twinlog(role: str, end: int, **more) -> dict:
    return {"role": role, "logStart": 0, "logEnd": end, "nowMs": NOW, "replicas": [], **more}


VIEW = {
    "identity": None,
    "observer": False,
    "lagBytes": 700,
    "lagMessages": 7,
    "lagMessagesExact": True,
    "lagMs": 70,
    "inSync": True,
    "bytesPerSecond": 5,
}


async def lag(documents: dict[str, dict], java_ends: dict[str, int]) -> LagFacts | None:
    (group,) = await gather_groups(FakeAdmin(documents, java_ends))  # type: ignore[arg-type]
    assert plain(report_of([group]).as_data())  # whatever is known can be shown
    return group.lags.get(1)


async def test_behind_a_java_master_the_missing_records_are_counted_and_the_oldest_gives_the_time():
    following = {"state": "following", "bytesPerSecond": 9}
    replica = {"replica:1": twinlog("SLAVE", 2 * SIZE, following=following)}
    assert await lag(replica, {"master:1": 5 * SIZE}) == LagFacts(3 * SIZE, 3, True, 4_000, True, 9)
    assert await lag(replica, {"master:1": 2 * SIZE}) == LagFacts(0, 0, True, 0, True, 9)
    far = await lag(replica, {"master:1": 502 * SIZE})
    assert far == LagFacts(500 * SIZE, 500, False, 4_000, True, 9), "many are estimated from some"


async def test_a_lone_java_replica_is_the_connection_without_a_name():
    master = {"master:1": twinlog("ASYNC_MASTER", 1000, replicas=[VIEW])}
    assert await lag(master, {"replica:1": 300}) == LagFacts(700, 7, True, 70, True, 5)
    observed = {"master:1": twinlog("ASYNC_MASTER", 1000, replicas=[{**VIEW, "observer": True}])}
    assert await lag(observed, {"replica:1": 300}) == LagFacts(700, in_sync=False), "observers are no replicas"


async def test_a_twinlog_replica_is_known_by_its_instance():
    named = {**VIEW, "identity": "i-1"}
    documents = {
        "master:1": twinlog("ASYNC_MASTER", 1000, replicas=[VIEW, named]),
        "replica:1": twinlog("SLAVE", 300, instance="i-1"),
    }
    assert await lag(documents, {}) == LagFacts(700, 7, True, 70, True, 5)
    documents["replica:1"]["instance"] = "i-2"
    assert await lag(documents, {}) == LagFacts(700, in_sync=False), "it has no link to this master"


async def test_a_broker_that_does_not_answer_is_silent_and_its_lag_unknown():
    assert await lag({"master:1": twinlog("ASYNC_MASTER", 1000)}, {}) is None


async def test_a_master_that_stops_during_the_questions_leaves_the_lag_in_bytes():
    class Leaving(FakeAdmin):
        async def log_record(self, address: str, physical_offset: int) -> bytes | None:
            raise NetError("connection to master:1 was lost")

    following = {"state": "following", "bytesPerSecond": 9}
    admin = Leaving({"replica:1": twinlog("SLAVE", 2 * SIZE, following=following)}, {"master:1": 5 * SIZE})
    (group,) = await gather_groups(admin)  # type: ignore[arg-type]
    assert group.lags[1] == LagFacts(3 * SIZE, in_sync=True, bytes_per_second=9)


async def test_a_name_without_addresses_has_no_members():
    class Leaving(FakeAdmin):
        async def cluster_info(self) -> ClusterInfo:
            return ClusterInfo(broker_addr_table={}, cluster_addr_table={"C": ["b"]})

    (group,) = await gather_groups(Leaving({}, {}))  # type: ignore[arg-type]
    assert group.members == [] and "no master" in report_of([group]).tables[0].title


async def test_tasks_that_failed_unexpectedly_are_shown_with_their_error():
    failed = {"RegisterService": {"failures": 3, "error": "KeyError: 'x'", "failedMs": NOW, "paused": True}}
    documents = {"master:1": twinlog("ASYNC_MASTER", SIZE, failedTasks=failed), "replica:1": twinlog("SLAVE", SIZE)}
    (group,) = await gather_groups(FakeAdmin(documents, {}))  # type: ignore[arg-type]
    (table,) = [table for table in report_of([group]).tables if "failed unexpectedly" in (table.title or "")]
    assert table.title == "b: tasks of broker 0 that failed unexpectedly; see its log"
    ((task, state, failures, _),) = table.rows
    assert (task, state, failures) == ("RegisterService", "paused", 3)
    assert table.notes == ["RegisterService: KeyError: 'x'"]


async def test_brokers_are_asked_at_the_same_time_so_one_that_hangs_delays_no_other():
    """Seen to fail when one broker is asked after the other."""
    master_answered = asyncio.Event()

    class Slow(FakeAdmin):
        async def replication_status(self, address: str) -> dict | None:
            if address == "replica:1":
                return await super().replication_status(address)
            async with asyncio.timeout(10):
                await master_answered.wait()
            return await super().replication_status(address)

        async def runtime_info(self, address: str) -> dict[str, str]:
            master_answered.set()
            return {}

    documents = {"master:1": twinlog("ASYNC_MASTER", SIZE), "replica:1": twinlog("SLAVE", SIZE)}
    admin = Slow(documents, {})
    groups = await registered_groups(admin)  # type: ignore[arg-type]
    await ask_groups(admin, groups, with_runtime=True)  # type: ignore[arg-type]
    assert [one.kind for one in groups[0].members] == ["twinlog", "twinlog"]


async def test_a_java_5_master_says_how_far_its_java_replica_is_and_4_9_does_not():
    link = HaConnectionInfo(addr="replica:40123", slave_ack_offset=3 * SIZE, in_sync=True, transferred_byte_in_second=8)

    class Java5(FakeAdmin):
        async def ha_status(self, address: str):
            return HaRuntimeInfo(ha_connection_info=[link] if address == "master:1" else [])

    ends = {"master:1": 3 * SIZE, "replica:1": 3 * SIZE}
    (group,) = await gather_groups(Java5({}, ends))  # type: ignore[arg-type]
    assert group.lags[1] == LagFacts(0, 0, True, 0, True, 8, acked=3 * SIZE)
    (group,) = await gather_groups(FakeAdmin({}, ends))  # type: ignore[arg-type]
    assert group.lags[1] == LagFacts(0, 0, True, 0, None), "nobody knows whether it is connected"
