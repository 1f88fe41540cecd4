"""What a synchronisation copies, and how the work is shared among tasks; nothing here touches a broker or a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address, parse_address
from twinlog.spark.paths import local_path
from twinlog.wire.bodies import ClusterInfo
from twinlog.wire.codes import MASTER_ID

COPIES_AT_ONCE = 4  # of one task: more would only wait for the disk and the network
_SHARE_MS_MIN = 500
_DAY_MS = 86_400_000
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?")
_KEEP = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|[KMGT]?i?B)", re.IGNORECASE)
_KEEP_MS_MIN = 3_600_000
_FOLDER = re.compile(r"[^/\0]+")


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """A master by its name and remoting address; `store` is its directory, if workers can read it."""

    name: str
    address: str
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How much of a log stays: at least so many bytes, or what was stored in the last so many milliseconds."""

    bytes: int | None = None
    ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncJob:
    """Which masters are copied, and where to; without brokers and addresses, all masters that are registered."""

    to: str
    cluster: ClusterOptions = field(default_factory=lambda: ClusterOptions(name_servers=()), repr=False)
    brokers: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    cluster_name: str | None = None
    stores: Mapping[str, str] = field(default_factory=dict)  # broker name -> its store directory
    every_ms: int = 10_000
    once: bool = False
    history: str | None = None
    checkpoint: str | None = None
    cores: int = 0  # 0: as many as Spark has
    range_bytes_max: int = 256 * 1024 * 1024
    modes: Modes = PRIVATE  # of the replicas' files and directories
    keep: Keep | None = None  # how much of each replica's log; None: all
    history_kinds: tuple[str, ...] = ()  # of metadata; empty: all
    history_keep_ms: int | None = None
    offsets_every_ms: int = 600_000
    status_keep_ms: int = 7 * _DAY_MS
    ha_secret: str | None = field(default=None, repr=False)
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"

    @property
    def history_place(self) -> Address:
        return parse_address(self.history or Path(self.to) / "_history", "--history")

    @property
    def checkpoint_path(self) -> Path:
        return Path(self.checkpoint) if self.checkpoint else Path(self.to) / "_checkpoint"


def check_job(job: SyncJob) -> SyncJob:
    """`job` with absolute local paths; BadOption if it is invalid."""
    if not job.to:
        raise BadOption("a synchronisation needs a directory for its replicas: --to DIR")
    job = replace(
        job,
        to=str(local_path(job.to, "--to")),
        history=str(parse_address(job.history, "--history")) if job.history else None,
        checkpoint=str(local_path(job.checkpoint, "--checkpoint")) if job.checkpoint else None,
        stores={name: str(local_path(store, "--store")) for name, store in job.stores.items()},
    )
    if not job.addresses and not job.cluster.name_servers:
        raise BadOption("no masters are given: give a name server (-n host:port) or --address host:port")
    if job.addresses and (job.brokers or job.cluster_name):
        raise BadOption("--address names brokers directly; --broker and --cluster choose among those of a name server")
    if job.every_ms < 100:
        raise BadOption(f"a tick every {job.every_ms} ms leaves no time for the tick itself: give at least 100ms")
    return job


def check_stores(job: SyncJob, copied: Iterable[str]) -> None:
    """BadOption if --store names a broker that is not copied; the store would silently not be used."""
    unknown = sorted(set(job.stores) - set(copied))
    if unknown:
        raise BadOption(f"--store names {unknown[0]!r}, which is not copied; copied are {', '.join(sorted(copied))}")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `10s`, `500ms`, `2m`; a bare number counts seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadOption(f"{text!r} is not a duration: write for example 10s, 500ms or 2m")
    return int(match[1]) * _UNITS_MS[match[2] or "s"]


def parse_keep(text: str) -> Keep:
    """`7d` or `36h` is a time, `500GB` or `64MiB` a size."""
    found = _KEEP.fullmatch(text.strip())
    if found is None:
        raise BadOption(f"--keep {text!r} is neither a size nor a time: write for example 500GB or 7d")
    number, unit = float(found[1]), found[2].lower()
    if unit in _UNITS_MS:
        if (ms := round(number * _UNITS_MS[unit])) < _KEEP_MS_MIN:
            raise BadOption(f"--keep {text!r} is less than an hour: a copy that short is of no use")
        return Keep(ms=ms)
    power = " kmgt".index(unit[0]) if unit[0] in "kmgt" else 0
    return Keep(bytes=round(number * (1024 if "i" in unit else 1000) ** power))


def parse_kinds(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The kinds of metadata in a list with commas."""
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for kind in kinds:
        if kind not in known:
            raise BadOption(f"--history-kinds names {kind!r}; the kinds are {', '.join(known)}")
    if not kinds:
        raise BadOption(f"--history-kinds names no kind; the kinds are {', '.join(known)}")
    return kinds


def parse_stores(words: Sequence[str]) -> dict[str, str]:
    """`name=directory` words."""
    found = {}
    for word in words:
        name, equals, directory = word.partition("=")
        if not equals or not name or not directory:
            raise BadOption(f"--store {word!r} is not BROKER=DIRECTORY, for example broker-a=/data/broker-a/store")
        found[name] = directory
    return found


def choose_masters(info: ClusterInfo, job: SyncJob) -> list[BrokerTarget]:
    """The registered masters that the job wants, by name; BadOption names one that does not exist."""
    names = set(info.broker_addr_table)
    if job.cluster_name is not None:
        if job.cluster_name not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise BadOption(f"the name server knows no cluster {job.cluster_name!r}; it knows {known}")
        names &= set(info.cluster_addr_table[job.cluster_name])
    unknown = [name for name in job.brokers if name not in names]
    if unknown:
        known = ", ".join(sorted(names)) or "none"
        raise BadOption(f"no broker {unknown[0]!r} is registered there; registered are {known}")
    chosen = sorted(set(job.brokers) or names)
    masters = {name: master_address(info, name) for name in chosen}
    gone = [name for name in job.brokers if masters[name] is None]
    if gone:
        raise BadOption(f"broker {gone[0]!r} has no master at the moment: start it, or leave it out")
    return [BrokerTarget(name, at, job.stores.get(name)) for name, at in masters.items() if at is not None]


def master_address(info: ClusterInfo, name: str) -> str | None:
    return info.broker_addr_table[name].broker_addrs.get(MASTER_ID)


def check_folder(broker: str) -> str:
    """A broker's name as the name of its folder."""
    if not _FOLDER.fullmatch(broker) or broker in (".", "..") or broker.startswith("_"):
        raise BadOption(f"the broker name {broker!r} cannot be the name of a folder: rename the broker")
    return broker


def share_out(targets: Sequence[BrokerTarget], cores: int) -> list[tuple[BrokerTarget, ...]]:
    """Groups of brokers, one for each task; at most two tasks per core, since a task costs more than a broker."""
    count = min(len(targets), 2 * max(cores, 1))
    return [tuple(targets[number::count]) for number in range(count)]


def copy_share_ms(tick_ms: int, copying: int) -> int:
    """How long each of `copying` brokers of a task may copy, so that all can copy within `tick_ms`."""
    rounds = -(-copying // COPIES_AT_ONCE) or 1
    return max(tick_ms // rounds, min(_SHARE_MS_MIN, tick_ms))
