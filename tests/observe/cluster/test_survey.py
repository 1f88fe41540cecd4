"""Rounds of questions remember who was there."""

import pytest
from tests.observe.cluster.test_broker_groups import NOW, SIZE, FakeAdmin, twinlog

from twinlog.client import NetError
from twinlog.observe.cluster.broker_groups import gather_groups
from twinlog.observe.cluster.health import Level
from twinlog.observe.cluster.survey import FORMER_MASTER, Survey
from twinlog.wire.bodies import BrokerData, ClusterInfo


class Admin(FakeAdmin):
    """`registered` has the broker ids and addresses of now; None: the name server is down."""

    registered: dict[int, str] | None = {0: "master:1", 1: "replica:1"}  # noqa: RUF012

    async def cluster_info(self) -> ClusterInfo:
        if self.registered is None:
            raise NetError("no name server answers")
        broker = BrokerData(cluster="C", broker_name="b", broker_addrs=dict(self.registered))
        return ClusterInfo(broker_addr_table={"b": broker}, cluster_addr_table={"C": ["b"]})

    async def runtime_info(self, address: str) -> dict[str, str]:
        return {"putTps": "1.0 1.0 1.0"}


DOCUMENTS = {"master:1": twinlog("ASYNC_MASTER", 100), "replica:1": twinlog("SLAVE", 100)}


def survey():
    admin = Admin(dict(DOCUMENTS), {})
    return admin, Survey(admin)  # type: ignore[arg-type]


async def test_a_broker_that_lost_its_registration_stays_and_is_critical_until_it_is_forgotten():
    admin, rounds = survey()
    assert [one.address for one in (await rounds.round(NOW)).brokers] == ["master:1", "replica:1"]
    admin.registered = {0: "master:1"}
    view = await rounds.round(NOW)
    gone = view.brokers[1]
    assert (gone.address, gone.is_registered, gone.health.level) == ("replica:1", False, Level.CRITICAL)
    rounds.forget("replica:1")
    assert [one.address for one in (await rounds.round(NOW)).brokers] == ["master:1"]


async def test_a_new_broker_with_its_id_replaces_a_gone_replica_but_not_a_gone_master():
    admin, rounds = survey()
    await rounds.round(NOW)
    admin.registered = {0: "master:1", 1: "other:1"}
    assert [one.address for one in (await rounds.round(NOW)).brokers] == ["master:1", "other:1"]
    admin.registered = {0: "other:1"}
    view = await rounds.round(NOW)
    assert [(one.broker_id, one.address) for one in view.brokers] == [(0, "other:1"), (FORMER_MASTER, "master:1")]
    assert view.groups[0].master is not None and view.groups[0].master.address == "other:1"


async def test_without_a_name_server_the_brokers_of_before_are_asked_and_not_called_gone():
    admin, rounds = survey()
    await rounds.round(NOW)
    admin.registered = None
    view = await rounds.round(NOW)
    assert view.error == "no name server answers"
    assert [(one.kind, one.is_registered) for one in view.brokers] == [("twinlog", True)] * 2


@pytest.mark.parametrize(
    "odd",
    [
        {"following": []},
        {"failedTasks": {"flush": 1}},
        {"metadata": {"topics": {}}},
        {"replicas": [{}]},
        {"logEnd": -1},
        {"logEnd": 2**70},
        {"logEnd": "100"},
    ],
)
async def test_an_odd_answer_costs_the_row_of_its_broker_only(odd):
    """Seen to fail: an exception ended the round, and no broker was shown any more."""
    admin, rounds = survey()
    admin._documents["replica:1"] = {**DOCUMENTS["replica:1"], **odd}
    master, replica = (await rounds.round(NOW)).brokers
    assert (master.kind, master.health.is_ok) == ("twinlog", True)
    assert replica.kind == "silent" and "is not understood" in replica.health.reason


async def test_a_slow_master_does_not_hold_up_the_round(monkeypatch):
    """Each of the missing records is a request of its own."""
    asked, now_s = [], [0.0]

    class Slow(FakeAdmin):
        async def log_record(self, address: str, physical_offset: int) -> bytes | None:
            asked.append(physical_offset)
            now_s[0] += 0.9
            return await super().log_record(address, physical_offset)

    monkeypatch.setattr("twinlog.observe.cluster.broker_groups.time.monotonic", lambda: now_s[0])
    (group,) = await gather_groups(Slow({}, {"master:1": 50 * SIZE, "replica:1": 0}))  # type: ignore[arg-type]
    assert len(asked) == 3 and (group.lags[1].messages, group.lags[1].messages_exact) == (50, False)


async def test_only_a_broker_that_may_be_twinlog_is_asked_what_java_does_not_know():
    asked = []

    class Java(Admin):
        async def replication_status(self, address: str) -> dict | None:
            asked.append(address)
            return None

        async def runtime_info(self, address: str) -> dict[str, str]:
            return {"commitLogMinOffset": "0", "commitLogMaxOffset": "5"}

    rounds = Survey(Java({}, {}))  # type: ignore[arg-type]
    for _ in range(3):
        view = await rounds.round(NOW)
    assert {one.kind for one in view.brokers} == {"java"} and sorted(asked) == ["master:1", "replica:1"]
