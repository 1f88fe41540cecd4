"""A SYNC master and its replica as processes that are killed again and again while a producer sends.

The run records a history: what was sent, what was acknowledged, what can be read in the end. A checker
judges it: every acknowledged message is there, on both brokers, and both logs have the same bytes.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.java_rocketmq import Broker
from tests.interop.replica_pair import Pair, pull_everything, until

from twinlog.client import ClientError, NetError, Outgoing, SendStatus
from twinlog.client.sync import Producer


@dataclass
class History:
    sent: int = 0
    acknowledged: set[str] = field(default_factory=set)
    kills: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.sent} sent, {len(self.acknowledged)} acknowledged, killed {' '.join(self.kills) or 'nobody'}"


class KillRun:
    """Send and kill for some seconds, then let everything recover and judge."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.random = random.Random(seed)
        self.history = History()
        self._over = threading.Event()

    def run(self, seconds: float) -> History:
        with Pair.running(self.home, "twinlog", "twinlog", "SYNC_MASTER") as pair:
            pair.joined()
            sender = threading.Thread(target=self._send, args=(pair.names.address,), daemon=True)
            sender.start()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(self.random.uniform(0.2, 1.5))
                self._kill_one(pair)
            self._over.set()
            sender.join(60)
            self._judge(pair)
        return self.history

    def _send(self, names: str) -> None:
        with Producer(names, "PG_FAULTS") as producer:
            while not self._over.is_set():
                body = b"%d " % self.history.sent + b"x" * self.random.randrange(2000)
                self.history.sent += 1
                try:
                    result = producer.send(Outgoing("TwinTopic", body), timeout_ms=1000)
                except (ClientError, NetError):
                    time.sleep(0.02)  # nobody promised anything about this message
                    continue
                if result.status is SendStatus.OK:
                    self.history.acknowledged.add(result.message_id)

    def _kill_one(self, pair: Pair) -> None:
        if self.random.random() < 0.5:
            self.history.kills.append("master")
            pair.master.kill()
            time.sleep(self.random.uniform(0, 0.5))
            pair.restart_master()
        else:
            self.history.kills.append("replica")
            pair.replica.kill()
            time.sleep(self.random.uniform(0, 0.5))
            pair.restart_replica()

    def _judge(self, pair: Pair) -> None:
        """Raises AssertionError that names the history when a promise was broken."""
        pair.joined()
        pair.logs_equal(90)
        for broker in (pair.master, pair.replica):
            with contextlib.suppress(AssertionError):  # a replica may still have to learn of the topic
                until(lambda broker=broker: not self.history.acknowledged - _readable(broker), "all readable", 30)
            missing = self.history.acknowledged - _readable(broker)
            assert not missing, f"{len(missing)} acknowledged messages are not at {broker.home.name}: {self.history}"


def _readable(broker: Broker) -> set[str]:
    return {message.message_id for message in pull_everything(broker.address, "TwinTopic", 8)}
