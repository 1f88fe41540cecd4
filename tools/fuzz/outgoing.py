"""Spoiled answers against whatever asks: a broker that registers, a replica that follows, a client.

A name server and a master are real, and a hostile proxy stands before each of their ports. Within a seed every kind of
question is asked; an error that is not one of those the caller expects, a task behind the fence that failed, or an
exception that nobody caught is a finding. At the end the peers are sane: everything must work again.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import QUICK, Cluster, running_cluster, twins, until
from tools.fuzz.mutation import named_seed
from tools.fuzz.spoiling import Hostile

from twinlog.broker.broker import Broker
from twinlog.broker.ports import free_port
from twinlog.client import (
    Admin,
    ClientError,
    ClientOptions,
    ConsumerOptions,
    NetError,
    Outgoing,
    Producer,
    PushConsumer,
    StartFrom,
)
from twinlog.replication.errors import ReplicationError
from twinlog.store.errors import StoreError
from twinlog.telemetry import fence
from twinlog.wire.errors import WireError

QUESTION_S_MAX = 0.5  # some questions are never answered
_CLIENT_ERRORS = (ClientError, NetError, WireError)
_REPLICA_ERRORS = (OSError, NetError, ReplicationError, StoreError, WireError)
_CLIENT = ClientOptions(request_timeout_ms=200, route_refresh_ms=200, heartbeat_ms=200)


@dataclass(slots=True)
class Target:
    """Everything that asks hostile peers."""

    hostile: Hostile
    master: Broker
    replica: Broker
    other: Broker  # a master of its own, which registers with the hostile name server
    producer: Producer
    consumer: PushConsumer
    admin: Admin
    got: list[bytes]
    uncaught: list[dict[str, Any]]


def fuzz(seeds: Iterable[int]) -> str:
    """What was played, for each of the seeds; raises SeedFailed."""
    return asyncio.run(_fuzz(seeds))


async def _fuzz(seeds: Iterable[int]) -> str:
    played = 0
    pauses = fence.PAUSE_S_MIN, fence.PAUSE_S_MAX
    fence.PAUSE_S_MIN = fence.PAUSE_S_MAX = 0.05
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with _target(Path(folder)) as target:
                for seed in seeds:
                    with named_seed(seed):
                        target.hostile.begin(seed)
                        await _ask_everything(target, seed)
                        _look_for_findings(target)
                    played += 1
                target.hostile.end()
                await _check_all_is_well(target)
                _look_for_findings(target)
    finally:
        fence.PAUSE_S_MIN, fence.PAUSE_S_MAX = pauses
    return f"{played} seeds"


@contextlib.asynccontextmanager
async def _target(home: Path) -> AsyncIterator[Target]:
    hostile, uncaught, got = Hostile(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: uncaught.append(context))

    async def listen(message: Any) -> None:
        got.append(message.body)

    async with contextlib.AsyncExitStack() as stack:
        cluster: Cluster = await stack.enter_async_context(running_cluster(home))
        master = await cluster.start("master", waitTimeMillsInSendQueue=10_000)
        names_port, port, real = free_port(), free_port(), master.conf.broker.listen_port
        hostile.rewritten = {
            f"127.0.0.1:{real + step}".encode(): f"127.0.0.1:{port + step}".encode() for step in (-2, 0, 1)
        }
        await stack.enter_async_context(hostile.before(names_port, int(cluster.names.rpartition(":")[2])))
        for step in (-2, 0, 1):
            await stack.enter_async_context(hostile.before(port + step, real + step, ha=step == 1))
        names = f"127.0.0.1:{names_port}"
        keys = {**QUICK, "namesrvAddr": names, "registerBrokerTimeoutMills": 200}
        replica = await stack.enter_async_context(
            running_broker(broker_conf(home / "replica", brokerRole="SLAVE", brokerId=1, **keys))
        )
        other = await stack.enter_async_context(
            running_broker(broker_conf(home / "other", **keys, brokerName="broker-b"))
        )
        producer = await stack.enter_async_context(Producer(names, "g", options=_CLIENT))
        await producer.send(Outgoing("T", b"first"))
        consumer = PushConsumer(
            names, "group", listen, options=_CLIENT, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST)
        )
        consumer.subscribe("T")
        await stack.enter_async_context(consumer)
        admin = await stack.enter_async_context(Admin(names, options=_CLIENT))
        await twins(master, replica)
        yield Target(hostile, master, replica, other, producer, consumer, admin, got, uncaught)


async def _ask_everything(target: Target, seed: int) -> None:
    replication = target.replica.replication
    assert replication is not None and target.other.replication is not None
    register = replication.register
    await asyncio.gather(
        _question(register.register_all(), ()),
        _question(register._register_changed({"T"}), ()),
        _question(target.other.replication.register.register_all(), ()),
        _question(target.other.replication.group.members(), ()),
        _question(target.other.replication.group.rival(0), ()),
        _question(replication.sync.sync(), ()),
        _question(replication.replica._join(replication.replica._addresses), _REPLICA_ERRORS)
        if replication.replica._addresses.ha
        else asyncio.sleep(0),
        _question(target.producer.send(Outgoing("T", f"{seed}")), _CLIENT_ERRORS),
        _question(target.consumer._assigned.rebalance(), ()),
        _question(target.admin.cluster_info(), _CLIENT_ERRORS),
        _question(target.admin.topic_configs(target.master.address), _CLIENT_ERRORS),
        _question(target.admin.runtime_info(target.master.address), _CLIENT_ERRORS),
    )
    replication.replica._changed.set()  # a replica that was refused would look again after ten seconds
    if (feed := replication.replica._receiver) is not None:
        feed.end(ReplicationError("the fuzz wants another link"))


async def _question(asked: Awaitable[Any], expected: tuple[type[Exception], ...]) -> None:
    with contextlib.suppress(TimeoutError, *expected):
        async with asyncio.timeout(QUESTION_S_MAX):
            await asked


def _look_for_findings(target: Target) -> None:
    for broker in (target.replica, target.other, target.master):
        assert broker.context is not None
        assert not broker.context.fence.failing(), f"{broker.conf.broker.broker_name}: {broker.context.fence.failing()}"
    tasks = [
        target.consumer._tasks,
        target.consumer._assigned._sink._tasks,
        target.consumer.session._tasks,
        target.producer.session._tasks,
        *(worker._tasks for worker in target.consumer.workers.values()),
    ]
    for one in tasks:
        assert not one.fence.failing(), one.fence.failing()
    assert not target.uncaught, target.uncaught


async def _check_all_is_well(target: Target) -> None:
    """With sane peers: all brokers take sends, the replica follows again, and the consumer gets the last message."""
    replication = target.replica.replication
    assert replication is not None
    replication.replica._changed.set()
    replication.register.register_soon()
    for broker in (target.master, target.other):
        async with connected(broker) as connection:
            assert (await send(connection)).code == 0
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(*_CLIENT_ERRORS):
                await target.producer.send(Outgoing("T", b"the last"))
                break
    await until(lambda: b"the last" in target.got, "the consumer has the last message")
    try:
        await twins(target.master, target.replica)
    except AssertionError as error:
        raise AssertionError(f"{error}: {replication.replica.status}, {replication.replica._addresses}") from error
    rounds = replication.sync.status.rounds
    await until(lambda: replication.sync.status.rounds >= rounds + 2, "two more rounds of metadata")
    errors = {name: kind.error for name, kind in replication.sync.status.kinds.items() if kind.error}
    assert not errors, errors
