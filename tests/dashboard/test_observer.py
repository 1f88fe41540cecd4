"""One observer for all browsers of an account: what it shares, and what it asks etcd."""

import asyncio

from tests.failover.etcd_server import start_etcd
from tests.observe.cluster.test_broker_groups import NOW

from twinlog.dashboard import observer_service
from twinlog.dashboard.observer_service import Observer
from twinlog.dashboard.settings import DashboardSettings
from twinlog.failover.group_keys import open_group
from twinlog.failover.records import History, encode_record, history_name
from twinlog.observe.replicas.metadata_rows import BrokerTables
from twinlog.settings.failover import FailoverSettings


async def test_tables_are_asked_once_for_many_pages_and_their_changes_are_kept(monkeypatch):
    clock, asked = [NOW], []
    monkeypatch.setattr(observer_service, "wall_clock_ms", lambda: clock[0])

    async def ask(admin, address, now_ms):
        asked.append(now_ms)
        await asyncio.sleep(0)
        topics = {"Orders": {"readQueueNums": str(4 * len(asked))}}
        snapshot = {"topics": topics, "groups": {}, "offsets": {}, "delayOffsets": {}}
        return BrokerTables(address, now_ms, snapshot, took_ms=500)

    monkeypatch.setattr(observer_service, "ask_tables", ask)
    observer = Observer(DashboardSettings(name_servers="127.0.0.1:1"), None)
    first = await asyncio.gather(*(observer.tables("m:1") for _ in range(20)))
    assert len(asked) == 1 and len({id(one) for one in first}) == 1
    clock[0] += 9_000
    await observer.tables("m:1")
    assert len(asked) == 1, "half a second of work is followed by ten seconds of rest"
    clock[0] += 2_000
    await observer.tables("m:1")
    (change,) = observer.metadata_changes
    assert (change.row.key, change.row.left, change.row.right) == ("Orders", "4", "8")


async def test_the_history_of_failovers_comes_from_etcd(tmp_path):
    plain = Observer(DashboardSettings(name_servers="127.0.0.1:1"), None)
    assert await plain.failovers() == {}
    with start_etcd(tmp_path) as server:
        settings = FailoverSettings(etcd=server.address)
        group = open_group(settings, "C", "broker-a", timeout_s=10)
        row = History(epoch=2, member="x", address="b1:1", start=500, reason="the lease ended", at_ms=NOW)
        await group.put(history_name(2), encode_record(row))
        observer = Observer(DashboardSettings(name_servers="127.0.0.1:1", failover=settings), None)
        assert await observer.failovers() == {("C", "broker-a"): [row]}
