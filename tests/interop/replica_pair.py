"""A master and its replica of any implementation, and the proofs that one is the other's twin."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop.clusters import Implementation, implementation
from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.patient import WaitingProducer
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import Outgoing, SendResult
from twinlog.wire.bodies import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    SubscriptionGroupTable,
    TopicConfigTable,
    decode_body,
)
from twinlog.wire.errors import BodyError
from twinlog.wire.message import Message, decode_message, decode_messages
from twinlog.wire.record_layout import MAGIC_BLANK

SEGMENT = 1 << 20
FILES_OF_49 = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


def until(condition: Callable[[], object], what: str, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


@dataclass
class Pair:
    """Start, kill and compare a master and its replica."""

    home: Path
    names: NameServer
    master_maker: Implementation
    replica_maker: Implementation
    role: str
    master: Broker
    replica: Broker

    @classmethod
    @contextlib.contextmanager
    def running(cls, home: Path, master: str, replica: str, role: str) -> Iterator[Pair]:
        makers = implementation(master), implementation(replica)
        with contextlib.ExitStack() as stack:
            names = stack.enter_context(Twinlog().name_server(home / "namesrv"))
            first = makers[0].broker(home / "master", names.address, **_conf(role, 0, replica=replica))
            second = makers[1].broker(home / "replica", names.address, **_conf("SLAVE", 1))
            pair = cls(home, names, *makers, role, first, second)
            stack.callback(lambda: (pair.master.kill(), pair.replica.kill()))
            yield pair

    def restart_master(self) -> None:
        port = self.master.port
        self.master = self.master_maker.broker(
            self.home / "master", self.names.address, port=port, **_conf(self.role, 0, replica=self.replica_maker.name)
        )

    def restart_replica(self) -> None:
        port = self.replica.port
        self.replica = self.replica_maker.broker(
            self.home / "replica", self.names.address, port=port, **_conf("SLAVE", 1)
        )

    def send(self, count: int, *, size: int = 1000, mark: str = "m") -> list[SendResult]:
        """Patient sends: a SYNC master whose replica has not come back yet answers only after its own timeout."""
        with WaitingProducer(self.names.address, "PG_TWIN") as producer:
            return [
                producer.send(
                    Outgoing("TwinTopic", b"%s-%d " % (mark.encode(), n) + b"x" * size, tags="A", keys=[f"k{n}"])
                )
                for n in range(count)
            ]

    def send_delayed(self, count: int) -> None:
        """Messages that wait at the broker for a second, so that it has delay offsets to tell."""
        with WaitingProducer(self.names.address, "PG_TWIN") as producer:
            for n in range(count):
                producer.send(Outgoing("DelayTopic", b"late %d" % n, delay_level=1))

    def joined(self) -> None:
        """Return once the replica gets what the master is sent."""
        self.send(1, size=10, mark="hello")
        until(lambda: log_end(self.replica.store) == log_end(self.master.store) > 0, "the replica has joined")

    def logs_equal(self, seconds: float = 150) -> None:
        until(lambda: same_logs(self.master.store, self.replica.store), "both commit logs have the same bytes", seconds)


def _conf(role: str, broker_id: int, *, replica: str = "twinlog") -> dict[str, str]:
    # A Twinlog master lets a Java replica in by its address, though replicas of its own have to prove a secret.
    by_address = {"haSharedSecret": "of-the-twinlog-replicas", "haReplicasFrom": "127.0.0.1"}
    return {
        **(by_address if replica != "twinlog" else {}),
        "brokerRole": role,
        "brokerId": str(broker_id),
        "mappedFileSizeCommitLog": str(SEGMENT),
        "slaveReadEnable": "true",
        "inSyncReplicas": "2",
        "slaveTimeout": "10000",  # a replica that was not given a core for 3 s is not a lost one
        "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    }


def segments(store: Path) -> list[Path]:
    return sorted(path for path in (store / "commitlog").glob("*") if path.is_file())


def log_end(store: Path) -> int:
    """Where the records of a store end, read from its files."""
    end = 0
    for path in segments(store):
        data = path.read_bytes()
        at = 0
        while at + 8 <= len(data):
            size, magic = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            if size <= 0 or magic == MAGIC_BLANK:
                at = len(data) if magic == MAGIC_BLANK else at
                break
            at += size
        end = int(path.name) + at
        if at < len(data):
            break
    return end


def same_logs(one: Path, other: Path) -> bool:
    """Whether two stores hold the same bytes wherever both have a file, and end at the same offset."""
    ends = log_end(one), log_end(other)
    files = {path.name: path for path in segments(one)}
    common = [(files[path.name], path) for path in segments(other) if path.name in files]
    return ends[0] == ends[1] > 0 and bool(common) and all(a.read_bytes() == b.read_bytes() for a, b in common)


def records(store: Path) -> Iterator[Message]:
    for path in segments(store):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            if size <= 0 or magic == MAGIC_BLANK:
                break
            yield decode_message(data, at)
            at += size


TYPED = {
    "topics.json": TopicConfigTable,
    "subscriptionGroup.json": SubscriptionGroupTable,
    "consumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
}


def same_config(master: Path, replica: Path, name: str, *, versions: bool) -> bool:
    """Whether a metadata file says the same on both sides. Read typed: 4.9 leaves out members that 5.x knows."""
    ours, theirs = typed_config(master, name), typed_config(replica, name)
    if ours is None or theirs is None:
        return False
    if not versions:
        ours.data_version = theirs.data_version = None
    return ours == theirs


def typed_config(store: Path, name: str):
    path = store / "config" / name
    try:
        return decode_body(TYPED[name], path.read_bytes())
    except (FileNotFoundError, BodyError):  # Java rewrites its files in place
        return None


def pull_everything(address: str, topic: str, queues: int) -> list[Message]:
    """All messages of a topic, read directly from one broker."""
    import asyncio

    from twinlog.net.pool import ConnectionPool
    from twinlog.wire.codes import RequestCode

    async def pull() -> list[Message]:
        pool, found = ConnectionPool(), []
        try:
            for queue in range(queues):
                offset = 0
                while True:
                    fields = {
                        "consumerGroup": "CG_READER",
                        "topic": topic,
                        "queueId": str(queue),
                        "queueOffset": str(offset),
                        "maxMsgNums": "32",
                        "sysFlag": "4",
                        "commitOffset": "0",
                        "suspendTimeoutMillis": "0",
                        "subscription": "*",
                        "subVersion": "0",
                        "expressionType": "TAG",
                    }
                    answer = await pool.request(address, RequestCode.PULL_MESSAGE, fields, timeout_ms=10_000)
                    if answer.code != 0 or not answer.body:
                        break
                    found += decode_messages(answer.body)
                    offset = int((answer.fields or {})["nextBeginOffset"])
        finally:
            await pool.close()
        return found

    return asyncio.run(pull())


def is_java(maker: Implementation) -> bool:
    return isinstance(maker, JavaRocketmq)
