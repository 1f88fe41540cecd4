"""What to archive: the description of a job, and the checks that need neither Spark nor a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.spark.errors import BadOption, nearest
from twinlog.spark.jobs.archive.layout import CHECKPOINT, FORMATS, TABLE_FORMATS, ArchiveHeader, chosen
from twinlog.spark.jobs.archive.parse.parser import parse_plan
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
    parse: str | None = None  # how bodies become columns: json=..., avro=..., protobuf=...
    parse_into: str | None = None  # one column for all that is parsed
    unparsed: str | Path | None = None  # the second table, of rows that do not parse; <target>_unparsed if None
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg; the table's own directory if empty
    table: str | None = None  # the table's name in the catalog

    @property
    def place(self) -> Address:
        return parse_address(self.target, "archive")

    @property
    def root(self) -> Path:
        """The directory of a local archive."""
        return self.place.local

    @property
    def unparsed_place(self) -> Address:
        if self.unparsed is not None:
            return parse_address(self.unparsed, "--unparsed")
        return self.place.parent / f"{self.place.name}_unparsed"

    @property
    def has_checkpoint(self) -> bool:
        """Whether Spark's checkpoint has the position, and not the archive itself."""
        return self.place.is_local and self.format not in TABLE_FORMATS

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
            **({"initialOffsetsLocation": str(self.root / CHECKPOINT / "initial")} if self.has_checkpoint else {}),
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
    job.header()
    _check_table_place(job, job.place, "--format parquet, ")
    _check_catalog(job)
    _check_parser(job)


def _check_table_place(job: ArchiveJob, place: Address, instead: str = "") -> None:
    if job.format in TABLE_FORMATS and place.scheme not in ("", "s3a"):
        hint = f"give {instead}s3a://..., or a directory that the driver and all workers see"
        raise BadOption(f"{place}: {job.format} tables are made on S3 and in local directories only; {hint}")


def _check_catalog(job: ArchiveJob) -> None:
    if job.format != "iceberg" and (job.catalog or job.table):
        raise BadOption(f"--catalog and --table are for --format iceberg: a {job.format} archive has no catalog")
    if job.table and not job.catalog:
        raise BadOption("--table names a table in a catalog: give --catalog too, or leave both out")


def _check_parser(job: ArchiveJob) -> None:
    if job.parse is None:
        if job.parse_into or job.unparsed:
            raise BadOption("--parse-into and --unparsed need --parse, which says how bodies are parsed")
        return
    if job.format not in TABLE_FORMATS:
        hint = "give --format iceberg or --format delta"
        raise BadOption(f"--parse fills two tables, and a {job.format} archive is only one: {hint}")
    _check_table_place(job, job.unparsed_place)
    one, other = f"{job.unparsed_place}/", f"{job.place}/"
    if one.startswith(other) or other.startswith(one):  # expiring the outer table would remove the files of the inner
        raise BadOption(
            f"--unparsed {job.unparsed}: rows that do not parse need a directory of their own, beside the other"
        )
    parse_plan(job.parse, job.parse_into)
