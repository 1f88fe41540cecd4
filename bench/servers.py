"""The two brokers under test, with the same configuration, at full speed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_rocketmq import Broker, JavaRocketmq
from tests.interop.twinlog_servers import Twinlog

JAVA_VERSION = "5.5.0"
# RocketMQ's own defaults, over the small files and short timers that the interop tests use.
DEFAULTS = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(6_000_000),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "enablePropertyFilter": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "transactionCheckInterval": "30000",
}
JVM_OPTIONS = (  # last one wins: the interop tests favour a quick start over speed
    "-server",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-Xms1g",
)


class FullSpeedJava(JavaRocketmq):
    """A Java broker with the normal compiler and normal priority."""

    def __init__(self) -> None:
        super().__init__(JAVA_VERSION, heap_mb=1024, jvm_options=JVM_OPTIONS)

    def _command(self, *args, **options) -> list[str]:
        command = super()._command(*args, **options)
        java = next(at for at, word in enumerate(command) if word.endswith("java"))
        return command[java:]  # without `nice`


def implementations() -> dict[str, Twinlog | FullSpeedJava]:
    return {"twinlog": Twinlog(), "java": FullSpeedJava()}


@contextlib.contextmanager
def running(kind: str, home: Path, name_server: str, **conf: str) -> Iterator[tuple[Broker, float]]:
    """A broker of this kind and the seconds it took to be ready."""
    started = time.perf_counter()
    with implementations()[kind].broker(home, name_server, registered=False, **{**DEFAULTS, **conf}) as broker:
        yield broker, time.perf_counter() - started


@dataclass(frozen=True)
class Brokers:
    """One broker of each kind, by "java" and "twinlog"; only one of them is under load at a time."""

    addresses: dict[str, str]
    pids: dict[str, int]
    name_server: str


@contextlib.contextmanager
def both_brokers(folder: Path, **conf: str) -> Iterator[Brokers]:
    with (
        Twinlog().name_server(folder / "names") as names,
        running("java", folder / "java", names.address, **conf) as (java, _),
        running("twinlog", folder / "twinlog", names.address, brokerName="broker-t", **conf) as (twinlog, _),
    ):
        addresses = {"java": java.address, "twinlog": twinlog.address}
        yield Brokers(addresses, {"java": java.pid, "twinlog": twinlog.pid}, names.address)


def in_turn(number: int) -> tuple[str, str]:
    """The order of both sides in round `number`: each comes first in every second one."""
    return ("java", "twinlog") if number % 2 else ("twinlog", "java")


def rss_mb(pid: int) -> float:
    """Resident memory; a Java process has no children of interest, ours neither."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
