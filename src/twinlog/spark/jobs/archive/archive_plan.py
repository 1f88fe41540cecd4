"""What to archive: the description of a job, and the checks that need neither Spark nor a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.spark.errors import BadOption, nearest
from twinlog.spark.jobs.archive.layout import CHECKPOINT, FORMATS, ArchiveHeader, chosen
from twinlog.spark.lake.address import Address, parse_address

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """What to archive, from where, and how; give `name_server` or `stores`."""

    target: str | Path
    name_server: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # for whole names; without it and without topics, all but system topics
    stores: tuple[str, ...] = ()
    format: str = "parquet"
    every: str | None = None  # "10 seconds": run until stopped; None: up to now
    columns: tuple[str, ...] = ()  # all if empty; those that identify a message are always included
    compression: str = "snappy"
    rows_max: int | None = None  # per batch, from brokers
    bytes_max: str | None = None  # per batch, from stores
    options: Mapping[str, str] = field(default_factory=dict)  # more options of the source: credentials, readFrom, …

    @property
    def place(self) -> Address:
        return parse_address(self.target, "archive")

    @property
    def root(self) -> Path:
        """The directory of a local archive."""
        return self.place.local

    def header(self) -> ArchiveHeader:
        return ArchiveHeader(self.format, "brokers" if self.name_server else "stores", chosen(self.columns))

    def source_options(self) -> dict[str, str]:
        """The options of `format("rocketmq")` or `format("rocketmq_store")`."""
        if not self.name_server:
            limit = {"maxBytesPerTrigger": self.bytes_max} if self.bytes_max else {}
            # Damage of other topics is not an error if topics are named.
            topics = {"topic": ",".join(self.topics)} if self.topics else {}
            return {"paths": json.dumps(list(self.stores)), **topics, **limit, **self.options}
        wanted = {"topic": ",".join(self.topics)} if self.topics else {"subscribePattern": self.pattern or ".*"}
        limit = {"maxOffsetsPerTrigger": str(self.rows_max)} if self.rows_max else {}
        return {
            "nameServer": self.name_server,
            **wanted,
            "startingOffsets": "earliest",
            # Spark asks a Python source again where its first batch began, so that is saved.
            **({"initialOffsetsLocation": str(self.root / CHECKPOINT / "initial")} if self.place.is_local else {}),
            **limit,
            **self.options,
        }


def check_job(job: ArchiveJob) -> None:
    """BadOption for an invalid description, before anything is started."""
    if bool(job.name_server) == bool(job.stores):
        raise BadOption("give a name server or store directories, and not both: one source fills an archive")
    if job.format not in FORMATS:
        raise BadOption(f"there is no format {job.format!r}: {nearest(job.format, FORMATS)}")
    if job.compression not in COMPRESSIONS:
        raise BadOption(f"there is no compression {job.compression!r}: {nearest(job.compression, COMPRESSIONS)}")
    if job.topics and job.pattern:
        raise BadOption("give topics or a pattern, not both")
    if job.rows_max is not None and not job.name_server:
        raise BadOption("rows per batch are counted for brokers only: limit the bytes per batch of stores")
    if job.bytes_max is not None and job.name_server:
        raise BadOption("bytes per batch are counted for stores only: limit the rows per batch of brokers")
    if not job.place.is_local and job.format != "parquet":
        hint = "give --format parquet, or a directory that the driver and all workers see"
        raise BadOption(f"{job.place}: a {job.format} archive is made in local directories only; {hint}")
    job.header()
