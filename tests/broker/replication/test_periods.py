"""Default periods on a clock that jumps: metadata at 3 s and every 10 s, registration at 0, 10 s and every 30 s."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.contexts import open_context
from tests.virtual_time import now_s, run_for

from twinlog.broker.naming.register_service import RegisterService
from twinlog.metadata.tables import open_tables
from twinlog.net.errors import ConnectFailed, ConnectionLost, RequestTimeout
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.settings.replication import ReplicationSettings
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode


class NotingPool:
    """Notes when it is asked what; answers at once, or fails to connect before `away_until_s`."""

    def __init__(self, away_until_s: float = 0.0) -> None:
        self.asked: list[tuple[float, int]] = []
        self.attributes: dict[str, object] = {}
        self._away_until_s = away_until_s

    async def get(self, address: str) -> NotingPool:
        if now_s() < self._away_until_s:
            self.asked.append((now_s(), -1))
            raise ConnectFailed(address, "away")
        return self

    async def request(self, *args: object, **_: object) -> Command:
        code = args[0] if isinstance(args[0], int) else args[1]
        assert isinstance(code, int)
        if not isinstance(args[0], int):
            await self.get(str(args[0]))
        self.asked.append((now_s(), code))
        return Command(0)

    def times(self, code: int) -> list[float]:
        return [at for at, asked in self.asked if asked == code]


def sync_for(seconds: float, pool: NotingPool, settings: ReplicationSettings) -> None:
    async def work() -> None:
        service = MetadataSyncService(
            lambda: settings,
            open_tables(None, 1),
            pool,  # type: ignore[arg-type]
            own_address="127.0.0.1:1",
            clock_ms=lambda: int(now_s() * 1000),
        )
        service.master_is_at("127.0.0.1:2")
        await service.run()

    run_for(seconds, work())


def test_metadata_is_asked_for_after_three_seconds_and_then_every_ten():
    pool = NotingPool()
    sync_for(45, pool, ReplicationSettings())
    assert pool.times(TwinlogCode.METADATA_CHANGES) == [3, 13, 23, 33, 43]


def test_a_master_that_is_away_is_asked_every_second_until_it_is_back():
    pool = NotingPool(away_until_s=6.5)
    sync_for(30, pool, ReplicationSettings())
    assert pool.times(-1) == [3, 4, 5, 6]
    assert pool.times(TwinlogCode.METADATA_CHANGES) == [7, 17, 27]


def test_other_periods_are_kept_to():
    pool = NotingPool()
    sync_for(4, pool, ReplicationSettings(metadata_first_delay_ms=500, metadata_interval_ms=1_500))
    assert pool.times(TwinlogCode.METADATA_CHANGES) == [0.5, 2, 3.5]


@pytest.mark.parametrize(
    ("given", "times"),
    [({}, [0, 10, 40, 70, 100]), ({"registerNameServerPeriod": 20_000}, [0, 10, 30, 50, 70, 90, 110])],
)
def test_a_broker_registers_at_its_start_after_ten_seconds_and_then_every_thirty(tmp_path, given, times):
    pool = NotingPool()
    register_for(119, tmp_path, pool, given)
    assert pool.times(RequestCode.REGISTER_BROKER) == times


def test_a_name_server_that_is_away_is_asked_every_three_seconds(tmp_path):
    pool = NotingPool(away_until_s=11)
    register_for(60, tmp_path, pool, {})
    assert pool.times(-1) == [0, 3, 6, 9]
    assert pool.times(RequestCode.REGISTER_BROKER) == [12, 42]


class DeadConnection(NotingPool):
    """Its connection is dead, as after a network was cut, until it is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = asyncio.Event()

    def drop(self, address: str) -> None:
        self.dropped.set()

    renew = drop

    async def request(self, *args: object, **more: object) -> Command:
        answer = await super().request(*args, **more)
        if not self.dropped.is_set():
            timeout_ms = args[4]
            assert isinstance(timeout_ms, int)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self.dropped.wait()
            except TimeoutError:
                raise RequestTimeout("names", 103, timeout_ms) from None
            raise ConnectionLost("names")
        return answer


def test_a_name_server_that_does_not_answer_is_asked_over_a_new_connection(tmp_path):
    pool = DeadConnection()
    register_for(40, tmp_path, pool, {})
    assert pool.times(RequestCode.REGISTER_BROKER)[:2] == [0, 27]  # 24 s, and 3 s later again
    assert pool.dropped.is_set()


def test_a_failover_does_not_wait_for_a_registration_that_hangs(tmp_path):
    pool = DeadConnection()
    register_for(
        40,
        tmp_path,
        pool,
        {"failoverEtcd": "127.0.0.1:2379", "brokerRole": "SLAVE", "brokerId": 1},
        role_changes_s=[2, 8],
    )
    assert pool.times(RequestCode.REGISTER_BROKER)[:2] == [0, 8]  # after 2 s it may still be answered


def register_for(
    seconds: float, tmp_path, pool: NotingPool, given: dict[str, object], role_changes_s: list[float] | None = None
) -> None:
    with open_context(tmp_path, namesrvAddr="127.0.0.1:9876", **given) as ctx:

        async def work() -> None:
            service = RegisterService(ctx, pool)  # type: ignore[arg-type]
            for at in role_changes_s or []:
                asyncio.get_running_loop().call_at(at, service.register_soon)
            await service.register_first()
            await service.run()

        run_for(seconds, work())
