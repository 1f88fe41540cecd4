"""What to compact: the description of a job, what it does to which partition, and what it did; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.spark.jobs.archive.layout import day_of, topic_of
from twinlog.spark.lake.address import Address, parse_address

ORDER = ("brokerName", "queueId", "queueOffset")  # of the rows in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJob:
    """Which partitions, and how large their files become."""

    target: str | Path
    before: str  # only days before this one, 2026-11-15
    file_bytes: int = 256 << 20
    files_min: int = 2  # a partition with fewer files is not rewritten
    topics: tuple[str, ...] = ()  # all if empty
    compression: str = "snappy"
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg, as for the archive
    table: str | None = None

    @property
    def place(self) -> Address:
        return parse_address(self.target, "archive")

    @property
    def root(self) -> Path:
        """The directory of a local archive."""
        return self.place.local


@dataclass(frozen=True, slots=True)
class Compaction:
    """One partition to rewrite: its files when it was planned, and how many they become."""

    partition: str
    files: Mapping[str, int]
    count: int


@dataclass(frozen=True, slots=True)
class CompactSummary:
    """What one run did."""

    target: str
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    left: tuple[str, ...] = field(default=())  # partitions that grew while they were rewritten


def plan_compaction(found: Mapping[str, Mapping[str, int]], job: CompactJob) -> list[Compaction]:
    """The partitions that are worth rewriting; `found` has each with its files and their sizes."""
    plan = []
    for partition, files in sorted(found.items()):
        if day_of(partition) >= job.before or (job.topics and topic_of(partition) not in job.topics):
            continue
        count = max(1, math.ceil(sum(files.values()) / job.file_bytes))
        if len(files) >= max(job.files_min, count + 1):
            plan.append(Compaction(partition, files, count))
    return plan
