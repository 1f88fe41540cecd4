"""Producers that send without pause and record what became of every send.

Each producer has a queue of its own, numbers its messages, and sends one after another, each exactly once: no client
library repeats anything in between, so that a history says which request was acknowledged by which broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.history import History, Outcome, Read, Send, body_of, read_of

from twinlog.client.sync import Admin
from twinlog.net.errors import ConnectFailed, NetError
from twinlog.net.pool import ConnectionPool
from twinlog.wire.bodies import TopicRouteData, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_messages

TOPIC = "Faults"
PRODUCERS = 4
_DID_NOTHING = {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.GO_AWAY,
}


@dataclass
class Load:
    """`with load.running():` sends in a thread of its own until the block ends."""

    name_server: str
    seed: int
    producers: int = PRODUCERS
    body_bytes_max: int = 2000
    body_bytes_min: int = 1
    timeout_ms: int = 3000
    pause_s: float = 0.002
    topic: str = TOPIC
    direct: str = ""  # always this broker, whatever the route says
    first_number: int = 0  # of the producers: two loads of one topic have different ones
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.seed)
        self._over = threading.Event()
        self._sequences = [0] * self.producers

    @contextlib.contextmanager
    def running(self) -> Iterator[History]:
        self._over.clear()
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        thread.start()
        try:
            yield self.history
        finally:
            self._over.set()
            thread.join(60)
            assert not thread.is_alive(), "a producer did not end"

    def go_on(self, acknowledged: int, seconds: float = 60) -> None:
        """Wait until so many more sends are acknowledged."""
        wanted = self.history.count(Outcome.ACKNOWLEDGED) + acknowledged
        deadline = time.monotonic() + seconds
        while self.history.count(Outcome.ACKNOWLEDGED) < wanted:
            assert time.monotonic() < deadline, f"no {acknowledged} acknowledged in {seconds} s: {self.last_reasons()}"
            time.sleep(0.05)

    def last_reasons(self) -> str:
        return f"{self.history}; last: {[send.reason for send in self.history.sends[-3:]]}"

    async def _run(self) -> None:
        await asyncio.gather(*(self._produce(number) for number in range(self.producers)))

    async def _produce(self, number: int) -> None:
        dice = random.Random(self.seed * 1000 + number)
        pool, master = ConnectionPool(connect_timeout_ms=1000), self.direct or None
        try:
            while not self._over.is_set():
                master = master or await self._find_master(pool)
                if master is None:
                    await asyncio.sleep(0.1)
                    continue
                sequence = self._sequences[number]
                self._sequences[number] += 1
                size = dice.randrange(self.body_bytes_min, self.body_bytes_max)
                body = body_of(self.first_number + number, sequence, dice.randbytes(size))
                send = await self._send(pool, master, number, sequence, body)
                self.history.sent(send)
                if send.outcome is Outcome.ACKNOWLEDGED:
                    await asyncio.sleep(self.pause_s)
                else:
                    await asyncio.sleep(0.05)
                    if send.reason.startswith("no answer"):  # a request that is not answered must not delay the next
                        pool.drop(master)
                    master = self.direct or None
        finally:
            await pool.close()

    async def _send(self, pool: ConnectionPool, master: str, number: int, sequence: int, body: bytes) -> Send:
        began = time.monotonic()

        def ended(outcome: Outcome, reason: str, offset: int = -1) -> Send:
            producer, now = self.first_number + number, time.monotonic()
            return Send(producer, sequence, began, now, outcome, master, number, offset, reason)

        fields = {"a": "PG_FAULTS", "b": self.topic, "c": "TBW102", "d": str(self.producers), "e": str(number)}
        fields |= {"f": "0", "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
        try:
            answer = await pool.request(master, RequestCode.SEND_MESSAGE_V2, fields, body, self.timeout_ms)
        except ConnectFailed as error:
            return ended(Outcome.REFUSED, str(error))
        except (NetError, WireError) as error:
            return ended(Outcome.UNKNOWN, f"no answer: {error}")
        if answer.code == ResponseCode.SUCCESS:
            return ended(Outcome.ACKNOWLEDGED, "", int((answer.fields or {})["queueOffset"]))
        outcome = Outcome.REFUSED if answer.code in _DID_NOTHING else Outcome.UNKNOWN
        return ended(outcome, f"code {answer.code}: {answer.remark}")

    async def _find_master(self, pool: ConnectionPool) -> str | None:
        try:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            answer = await pool.request(self.name_server, code, {"topic": self.topic}, timeout_ms=1000)
            route = decode_body(TopicRouteData, answer.body)
        except (NetError, WireError):
            return None
        return next((data.broker_addrs[0] for data in route.broker_datas if 0 in data.broker_addrs), None)


def make_topic(name_server: str, broker: str, queues: int = PRODUCERS, topic: str = TOPIC) -> None:
    """Create the topic at the master, and wait until clients find it."""
    from twinlog.client import ClientError
    from twinlog.wire.bodies import TopicConfig

    with Admin(name_server) as admin:
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        admin.save_topic(broker, config)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(ClientError):
                if admin.route_data(topic).queue_datas:
                    return
            time.sleep(0.05)
    raise AssertionError(f"topic {topic} has no route 30 s after it was created")


def read_all(broker: str, queues: int = PRODUCERS, topic: str = TOPIC) -> list[Read]:
    """All messages of the topic, from one broker, master or replica."""
    return asyncio.run(_read_all(broker, queues, topic))


async def _read_all(broker: str, queues: int, topic: str) -> list[Read]:
    pool, found = ConnectionPool(), []
    try:
        for queue in range(queues):
            offset = 0
            while True:
                fields = {"consumerGroup": "CG_FAULTS", "topic": topic, "queueId": str(queue)}
                fields |= {"queueOffset": str(offset), "maxMsgNums": "1000", "sysFlag": "4", "commitOffset": "0"}
                fields |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
                answer = await pool.request(broker, RequestCode.PULL_MESSAGE, fields, timeout_ms=10_000)
                if answer.code != ResponseCode.SUCCESS or not answer.body:
                    break
                found += [read_of(message) for message in decode_messages(answer.body)]
                offset = int((answer.fields or {})["nextBeginOffset"])
    finally:
        await pool.close()
    return found
