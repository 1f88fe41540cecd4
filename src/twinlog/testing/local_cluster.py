"""A name server, brokers and their replicas in a thread of this process, for tests.

with LocalCluster(brokers=2, replicas=1) as cluster:
    ...  # clients connect to cluster.namesrv
    cluster.advance(60)
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from twinlog.base.addresses import address_text
from twinlog.base.clock import MovableClock
from twinlog.broker.broker import Broker
from twinlog.broker.dev_service import DEV_SETTINGS
from twinlog.broker.embedded import SMALL_FILES, START_S_MAX, empty_disk
from twinlog.broker.task_errors import single_error
from twinlog.client.loop_thread import LoopThread
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.known_keys import is_java_key
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.telemetry.log import get_logger
from twinlog.testing.faults import Fault, Interference, RequestFault, Requests, codes_of, refusing, slowed

if TYPE_CHECKING:
    from twinlog.net.connection import Handler

log = get_logger(__name__)
T = TypeVar("T")
Setting = str | int | float  # a bool is an int
# Time that a test lets pass must not make clients silent: only a lost connection takes them away.
_TEST_SETTINGS = {"channelExpiredTimeout": str(10 * 365 * 86_400_000)}


class RunningBroker:
    """One broker of a LocalCluster; its methods are called from any thread but the cluster's."""

    def __init__(self, cluster: LocalCluster, name: str, broker_id: int, settings: Mapping[str, str]) -> None:
        self.name, self.broker_id = name, broker_id
        self.broker: Broker | None = None
        self._cluster, self._settings = cluster, dict(settings)
        self._task: asyncio.Task[None] | None = None
        self._interference: list[Interference] = []
        self._request_faults: list[RequestFault] = []
        self._full_disks = 0  # faults of this kind

    @property
    def address(self) -> str:
        """host:port; the same after `down` and `up`."""
        assert self.broker is not None, "it has not been started"
        return self.broker.address

    @property
    def log_end(self) -> int:
        """Where the next message will be in its log: a replica with the master's number has all messages."""
        assert self.broker is not None and self.broker.context is not None, f"{self.name} is down"
        return self.broker.context.store.log_end

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    def follows(self, master: RunningBroker) -> bool:
        """Whether this replica has all messages, topics and groups of `master`; asks it for the latter now."""
        if self.log_end < master.log_end:
            return False
        ours, theirs = self._tables, master._tables
        if any(set(theirs[kind]) - set(ours[kind]) for kind in theirs):
            self._cluster.call(self._sync_metadata)
        return all(set(theirs[kind]) <= set(ours[kind]) for kind in theirs)

    @property
    def _tables(self) -> dict[str, Mapping[str, object]]:
        assert self.broker is not None and self.broker.context is not None, f"{self.name} is down"
        context = self.broker.context
        return {"topics": context.topics.rows, "groups": context.groups.rows}

    async def _sync_metadata(self) -> None:
        assert self.broker is not None and self.broker.replication is not None
        await self.broker.replication.sync.sync()

    # -- faults --------------------------------------------------------------------------------

    def down(self) -> Fault:
        """Stop it, as SIGTERM does; the end of the fault starts it again on the same port and files."""
        self._cluster.call(self.stop)
        return Fault(self.up)

    def up(self) -> None:
        """Start it again after `down`."""
        if not self.is_up:
            self._cluster.call(self.start)

    def slow(self, seconds: float, requests: Requests = "all") -> Fault:
        """Let it wait before it handles these requests: all, send, pull, heartbeat, commit, or request codes."""
        return self._interfere(requests, lambda where: slowed(seconds, where.after_batch))

    def answer(
        self, code: int, remark: str = "a fault of the test", *, requests: Requests = "send", count: int | None = None
    ) -> Fault:
        """Let it answer these requests with a code of RocketMQ; only the next `count` of them, if given."""
        if isinstance(code, bool) or not isinstance(code, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"code={code!r}: give a number, such as ResponseCode.SYSTEM_BUSY of twinlog.wire.codes")
        change = refusing(code, remark, count)
        return self._interfere(requests, lambda where: change)

    def full_disk(self) -> Fault:
        """Let it find its disk full: sends are refused as a broker does then, reads go on."""

        def change(count: int) -> None:
            self._full_disks += count
            self._apply_faults()

        self._cluster.call_soon(lambda: change(1))
        return Fault(lambda: self._cluster.call_soon(lambda: change(-1)))

    def _interfere(self, requests: Requests, change: Callable[[Interference], Callable[[Handler], Handler]]) -> Fault:
        fault = (codes_of(requests), change)

        def begin() -> None:
            self._request_faults.append(fault)
            self._apply_faults()

        def end() -> None:
            self._request_faults.remove(fault)
            self._apply_faults()

        self._cluster.call_soon(begin)
        return Fault(lambda: self._cluster.call_soon(end))

    # -- in the cluster's thread ---------------------------------------------------------------

    def _apply_faults(self) -> None:
        """Let the broker have the faults that have begun and not ended; one that is down gets them when it starts."""
        for where in self._interference:
            where.apply(self._request_faults)
        if not self.is_up or self.broker is None or self.broker.context is None:
            return
        retention = self.broker.context.store._retention
        is_full = "_set_disk_flag" in vars(retention)
        if self._full_disks and not is_full:
            retention._set_disk_flag(True)
            retention._set_disk_flag = lambda full: None  # the regular look at the disk finds space
        elif is_full and not self._full_disks:
            del retention._set_disk_flag
            retention._set_disk_flag(False)

    async def start(self) -> None:
        """Returns once it is registered and serves; raises the error that stopped its start."""
        settings = self._settings
        if self.broker is not None:
            settings = settings | {"listenPort": str(self.broker.conf.broker.listen_port)}
        conf = load_broker_conf(text="", overrides=settings, environment={})
        for warning in conf.warnings:
            log.warning(warning.message)
        clock, ready = self._cluster.clock, asyncio.Event()
        broker = Broker(
            dataclasses.replace(conf, path=None),
            wall_ms=clock.wall_ms,
            ticks_ns=clock.ticks_ns,
            disk_ratio=empty_disk,
            on_ready=lambda _: ready.set(),
        )
        self.broker = broker
        self._task = asyncio.create_task(_run(broker), name=self.name)
        await _until_ready(ready, self._task, self.name)
        self._interference = [Interference(server) for server in broker.servers]
        self._apply_faults()

    async def stop(self) -> None:
        task, self._task, self._interference = self._task, None, []
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def clock_moved(self) -> None:
        if self.is_up and self.broker is not None and self.broker.context is not None:
            for look_again in self.broker.context.clock_moves:
                look_again()


def _text(key: str, value: Setting) -> str:
    """A value as broker.conf has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"setting {key}={value!r}: give text, a number or a bool")


def _check_keys(settings: Mapping[str, str]) -> None:
    """A server goes on without a key that nobody knows; a test would pass for the wrong reason."""
    for warning in load_broker_conf(text="", overrides=settings, environment={}).warnings:
        if not is_java_key(warning.key):
            raise ValueError(warning.message.replace("is unknown, ignored", "is not a key of broker.conf"))


class LocalCluster:
    """Starts on entering, or by `start`; `settings` are broker.conf keys of all brokers."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        replicas: int = 0,
        settings: Mapping[str, Setting] | None = None,
        directory: str | Path | None = None,
    ) -> None:
        if brokers < 1 or replicas < 0:
            raise ValueError(f"brokers={brokers}, replicas={replicas}: use at least 1 broker, and 0 or more replicas")
        self.clock = MovableClock()
        self._settings = {key: _text(key, value) for key, value in (settings or {}).items()}
        _check_keys(self._settings)
        self._directory = directory
        self._counts = (brokers, replicas)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._names: NameServerService | None = None
        self._names_task: asyncio.Task[None] | None = None
        self.brokers: list[RunningBroker] = []

    @property
    def namesrv(self) -> str:
        """host:port of the name server."""
        assert self._names is not None, "start it first"
        return address_text("127.0.0.1", self._names.port)

    @property
    def masters(self) -> list[RunningBroker]:
        return [each for each in self.brokers if each.broker_id == 0]

    @property
    def replicas(self) -> list[RunningBroker]:
        return [each for each in self.brokers if each.broker_id != 0]

    def start(self) -> Self:
        """Return once all brokers are registered and serve; raises the error that stopped the start."""
        directory = self._directory
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="twinlog-")
            directory = self._temporary.name
        self._thread = LoopThread("twinlog")
        try:
            self._thread.call(self._start(Path(directory)))
        except BaseException:
            with contextlib.suppress(Exception):  # the error of the start is the one to see
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop and close everything; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._stop())
            finally:
                thread.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def advance(self, seconds: float) -> None:
        """Let time pass for the brokers, without waiting: what is due within it is delivered now."""
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: time does not go back")

        def move() -> None:
            self.clock.advance(seconds)
            for each in self.brokers:
                each.clock_moved()

        self.call_soon(move)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `work()` in the cluster's thread."""
        assert self._thread is not None, "the cluster is not running"
        return self._thread.call(work())

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call `work` in the cluster's thread, and wait for its end."""

        async def run() -> None:
            work()

        if self._thread is not None:
            self._thread.call(run())

    # -- in the thread -------------------------------------------------------------------------

    async def _start(self, directory: Path) -> None:
        ready = asyncio.Event()
        overrides = {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(directory / "namesrv" / "kvConfig.json"),
            "configStorePath": str(directory / "namesrv" / "namesrv.properties"),
        }
        conf = load_nameserver_conf(None, overrides=overrides)
        self._names = NameServerService(conf, on_ready=lambda _: ready.set())
        self._names_task = asyncio.create_task(self._names.run(), name="name server")
        await _until_ready(ready, self._names_task, "the name server")
        brokers, replicas = self._counts
        for number in range(1, brokers + 1):
            name = DEV_SETTINGS["brokerName"] + (f"-{number}" if number > 1 else "")
            for broker_id in range(replicas + 1):
                role = {"brokerRole": "SLAVE"} if broker_id else {}
                settings = {
                    **DEV_SETTINGS,
                    **SMALL_FILES,
                    **_TEST_SETTINGS,
                    **self._settings,
                    **role,
                    "brokerName": self._settings.get("brokerName", name) if number == 1 else name,
                    "brokerId": str(broker_id),
                    "listenPort": "0",
                    "haListenPort": "0",
                    "storePathRootDir": str(directory / f"{name}-{broker_id}"),
                    "namesrvAddr": self.namesrv,
                }
                each = RunningBroker(self, settings["brokerName"], broker_id, settings)
                self.brokers.append(each)
                await each.start()

    async def _stop(self) -> None:
        stops = [await _outcome(each.stop()) for each in reversed(self.brokers)]
        if self._names_task is not None:
            self._names_task.cancel()
            await asyncio.gather(self._names_task, return_exceptions=True)
        for error in filter(None, stops):
            raise error


async def _outcome(work: Coroutine[Any, Any, None]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def _run(broker: Broker) -> None:
    with single_error():
        await broker.run()


async def _until_ready(ready: asyncio.Event, task: asyncio.Task[None], name: str) -> None:
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        if not ready.is_set():
            task.cancel()
            raise TimeoutError(f"{name} was not ready within {START_S_MAX} s")
    finally:
        waiting.cancel()
