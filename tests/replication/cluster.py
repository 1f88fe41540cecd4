"""A name server and brokers of one name inside the test's event loop, killed and started one by one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.broker.running import SEND_FIELDS, broker_conf, connected, pull, running_broker

from twinlog.broker.broker import Broker
from twinlog.broker.ports import free_port
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.command import Command
from twinlog.wire.message import Message, decode_messages
from twinlog.wire.twinlog_codes import TwinlogCode

QUICK = {
    "slaveMetadataSyncFirstDelay": 0,
    "slaveMetadataSyncInterval": 100,
    "haSendHeartbeatInterval": 200,
    "maxTransferCountOnMessageInMemory": 1000,
}


async def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


class Cluster:
    """Brokers by a name of the test's choice; each keeps its port and its store over restarts."""

    def __init__(self, home: Path, name_server: NameServerService) -> None:
        self.home = home
        self.name_server = name_server
        self.names = f"127.0.0.1:{name_server.port}"
        self._running: dict[str, contextlib.AsyncExitStack] = {}
        self._ports: dict[str, int] = {}

    async def start(self, name: str, role: str = "ASYNC_MASTER", broker_id: int = 0, **settings: Any) -> Broker:
        port = self._ports.setdefault(name, free_port())
        keys = {"brokerRole": role, "brokerId": broker_id, "listenPort": port, "namesrvAddr": self.names}
        stack = contextlib.AsyncExitStack()
        conf = broker_conf(self.home / name, **{**QUICK, **keys, **settings})
        broker = await stack.enter_async_context(running_broker(conf))
        self._running[name] = stack
        return broker

    @property
    def master_address(self) -> str | None:
        """Of broker-a, as the name server knows it."""
        found = self.name_server.context.table.brokers.get("broker-a")
        return found.broker_addrs.get(0) if found is not None else None

    async def stop(self, name: str) -> None:
        await self._running.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._running):
            await self.stop(name)


@contextlib.asynccontextmanager
async def running_cluster(home: Path) -> AsyncIterator[Cluster]:
    ready = asyncio.Event()
    overrides = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(home / "kvConfig.json"),
        "configStorePath": str(home / "namesrv.properties"),
    }
    service = NameServerService(load_nameserver_conf(None, overrides=overrides), on_ready=lambda _: ready.set())
    task = asyncio.create_task(service.run())
    await ready.wait()
    cluster = Cluster(home, service)
    try:
        yield cluster
    finally:
        await cluster.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def ask(broker: Broker, code: int, fields: dict[str, str] | None = None, body: bytes | None = None) -> Command:
    async with connected(broker) as connection:
        return await connection.request(code, fields, body, timeout_ms=15_000)


async def status(broker: Broker) -> dict[str, Any]:
    answer = await ask(broker, TwinlogCode.REPLICATION_STATUS)
    assert answer.code == 0, answer.remark
    return json.loads(answer.body or b"")


async def send_all(broker: Broker, bodies: list[bytes]) -> list[bytes]:
    """The bodies whose sends were acknowledged."""
    async with connected(broker) as connection:
        answers = await asyncio.gather(*(connection.request(310, SEND_FIELDS, body) for body in bodies))
    return [body for body, answer in zip(bodies, answers, strict=True) if answer.code == 0]


async def read_all(broker: Broker) -> list[Message]:
    found: list[Message] = []
    async with connected(broker) as connection:
        while True:
            answer = await pull(connection, queueOffset=str(len(found)), sysFlag="4", maxMsgNums="1000")
            if answer.code != 0:
                return found
            found += decode_messages(answer.body or b"")


def log_bytes(broker: Broker) -> bytes:
    assert broker.context is not None
    log, parts = broker.context.store.commit_log, []
    at = log.log_start
    while at < log.log_end:
        chunk = log.chunk(at, log.log_end - at)
        assert chunk is not None
        parts.append(bytes(chunk))
        at += len(chunk)
    return b"".join(parts)


def end_of(broker: Broker) -> int:
    assert broker.context is not None
    return broker.context.store.log_end


async def twins(master: Broker, replica: Broker, seconds: float = 20) -> None:
    """Return once the replica follows and has every byte; then compare them."""

    def caught_up() -> bool:
        assert replica.replication is not None and replica.context is not None
        follows = replica.replication.replica.status.state == "following"
        return follows and replica.context.store.whole_end == end_of(master)

    await until(caught_up, "the replica has caught up", seconds)
    assert log_bytes(replica) == log_bytes(master)
