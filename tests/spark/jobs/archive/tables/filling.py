"""Tables without Spark: a source of numbered messages, and a writer that does in this process what tasks do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from twinlog.spark.jobs.archive.layout import StagedFile
from twinlog.spark.jobs.archive.parse.parser import ERROR_COLUMN, BodyColumns, ParsePlan, parsed_columns
from twinlog.spark.jobs.archive.tables.fill import Filled, Run
from twinlog.spark.jobs.archive.tables.job import ready_table
from twinlog.spark.jobs.archive.tables.read_tables import ReadTableFiles, below, in_order
from twinlog.spark.jobs.archive.tables.table import ArchiveTable, TablePlace
from twinlog.spark.jobs.archive.tables.write_tables import Target, WriteTableParts, Written
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns, arrow_schema

MONDAY = 20_000  # days since 1970
DAY_US = 86_400_000_000
RETRY = "%RETRY%orders|eu" + "x" * 60  # a name that must be escaped, and that is longer than kept bounds
COLUMNS: Columns = {**MESSAGE_COLUMNS, "day": "date"}


def messages(numbers: range) -> pa.RecordBatch:
    """Two topics, two days; the body of each fifth is not JSON."""
    rows = [
        {
            "topic": RETRY if n % 3 else "Orders",
            "brokerName": "a",
            "queueId": 0,
            "queueOffset": n,
            "body": b'{"id": %d, "name": "n%d"}' % (n, n) if n % 5 else b"number %d" % n,
            "properties": [("KEYS", f"k{n}")],
            "storeTimestamp": (MONDAY + n % 2) * DAY_US + n * 1000,
        }
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(MESSAGE_COLUMNS))


@dataclass
class Numbers:
    """A source of messages 0 to `latest`, `step` of them in a batch."""

    latest: int
    step: int = 10
    first: int = 0

    def initialOffset(self) -> dict:
        return {"q": self.first}

    def getDefaultReadLimit(self) -> None:
        return None

    def latestOffset(self, start: dict, limit: None) -> dict:
        return {"q": max(start["q"], min(start["q"] + self.step, self.latest))}

    def reportLatestOffset(self) -> dict:
        return {"q": self.latest}

    def prepareForTriggerAvailableNow(self) -> None: ...

    def partitions(self, start: dict, end: dict) -> list:
        return [range(start["q"], end["q"])]


def local_lake(path: Path) -> Lake:
    return LocalLake(parse_address(path, "archive"))


@dataclass
class Archive:
    """A table, and with a parser a second one, filled as the job does it."""

    format: str
    lake: Lake
    second_lake: Lake | None = None
    plan: ParsePlan | None = None
    columns: Columns = field(default_factory=lambda: dict(COLUMNS))
    catalog: dict[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def place(self) -> TablePlace:
        return TablePlace(self.format, self.lake, self.catalog, self.name)

    def main_columns(self) -> Columns:
        more = parsed_columns(self.plan) if self.plan else {}
        return {**{name: kind for name, kind in self.columns.items() if name != "day"}, **more, "day": "date"}

    def tables(self) -> tuple[ArchiveTable, ArchiveTable | None]:
        main, _ = ready_table(self.place, self.main_columns())
        if self.plan is None or self.second_lake is None:
            return main, None
        return main, ready_table(TablePlace(self.format, self.second_lake), second_columns())[0]

    def run(self, source: Numbers, run: str = "run", **change) -> Run:
        main, second = self.tables()
        write = self.writer(main, second)
        digest = self.plan.digest() if self.plan else ""
        made = Run(run, main, second, source, write, digest)
        return replace(made, **change)

    def fill(self, latest: int, **more) -> Filled:
        return self.run(Numbers(latest, **more)).fill()

    def writer(self, main: ArchiveTable, second: ArchiveTable | None):
        target = Target(self.lake, main.file_shape(self.main_columns()), "snappy")
        other = Target(self.second_lake, second.file_shape(second_columns()), "snappy") if second else None
        work = WriteTableParts(None, (), target, other, self.plan)
        bodies = BodyColumns(self.plan) if self.plan else None

        def write(parts: list[range]) -> Written:
            found = Written([], [])
            for part in parts:
                for row in work._write([messages(part)] if part else [], bodies).to_pylist():
                    (found.second if row.pop("second") else found.main).append(StagedFile(**row))
            return found

        return write

    def rows(self, version: int | None = None) -> list[dict]:
        """What any reader of the newest files sees."""
        return rows_of(self.tables()[0], self.lake, version)

    def second_rows(self) -> list[dict]:
        return rows_of(self.tables()[1], self.second_lake)

    def numbers(self, version: int | None = None) -> list[int]:
        return sorted(row["queueOffset"] for row in self.rows(version))


def second_columns() -> Columns:
    return {**MESSAGE_COLUMNS, ERROR_COLUMN: "string", "day": "date"}


def rows_of(table: ArchiveTable, lake: Lake, version: int | None = None) -> list[dict]:
    files = tuple(below(lake, file) for file in table.data_files(version))
    read = ReadTableFiles(lake, files, in_order(table.columns()))
    return [row for batch in read([pa.record_batch({"n": range(len(files))})]) for row in batch.to_pylist()]


def delta_log(root: Path, version: int) -> list[dict]:
    return [json.loads(line) for line in (root / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]
