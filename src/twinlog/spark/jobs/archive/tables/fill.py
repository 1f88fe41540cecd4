"""Fills one or two tables: plans with the source's reader, lets tasks write, and commits each batch.

The position is in the table (see `commits`), so Spark's streaming and its checkpoint are not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlog.spark.jobs.archive.lakes.job import Source, every_seconds, wait
from twinlog.spark.jobs.archive.layout import BadArchive, StagedFile, TopicTotals, topic_of
from twinlog.spark.jobs.archive.tables.commits import NextBatch, TableCommit, check_unchanged, plan_next
from twinlog.spark.jobs.archive.tables.table import ArchiveTable, Conflict
from twinlog.spark.jobs.archive.tables.write_tables import Written
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

WriteBatch = Callable[[Sequence["InputPartition"]], Written]
_TRIES_MAX = 20  # of a commit; each time somebody else, for example a compaction, was quicker


@dataclass(frozen=True, slots=True)
class Filled:
    """What one run added: batches with messages, what each topic got, and rows that did not parse."""

    batches: int = 0
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)
    unparsed: int = 0

    def plus(self, main: Sequence[StagedFile], second: Sequence[StagedFile]) -> Filled:
        topics = dict(self.topics)
        for file in main:
            topic = topic_of(file.partition)
            topics[topic] = topics.get(topic, TopicTotals()) + TopicTotals(file.rows, 1, file.bytes)
        unparsed = self.unparsed + sum(file.rows for file in second)
        return Filled(self.batches + bool(main or second), topics, unparsed)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its tables, its source, and how a batch is written."""

    id: str
    main: ArchiveTable
    second: ArchiveTable | None
    source: Source
    write: WriteBatch
    parse: str = ""  # the digest of the parser
    name: str = "the table"

    def fill(
        self,
        every: str | None = None,
        report: ReportProgress = quiet,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Filled:
        """Add what is new; with `every`, until `is_over()`."""
        every_s = None if every is None else every_seconds(every)
        filled, seen = Filled(), self.main.last()
        coming = plan_next(seen, self.second.last() if self.second else None, self.parse)
        if every_s is None:
            self.source.prepareForTriggerAvailableNow()
        while not is_over():
            began = time.monotonic()
            start = dict(self.source.initialOffset() if coming.start is None else coming.start)
            fixed = coming.end is not None
            end = dict(coming.end or self.source.latestOffset(start, self.source.getDefaultReadLimit()))
            if end != start or fixed:
                filled, seen = self._batch(coming, start, end, seen, filled)
                coming = NextBatch(seen.batch + 1, seen.end)
                self._report(end, filled, report)
            elif every_s is None:
                break
            if every_s is not None and not fixed:
                wait(began + every_s, is_over)
        return filled

    def _batch(
        self, coming: NextBatch, start: dict, end: dict, seen: TableCommit | None, filled: Filled
    ) -> tuple[Filled, TableCommit]:
        parts = self.source.partitions(start, end)
        written = self.write(parts) if parts else Written([], [])
        commit = TableCommit(batch=coming.batch, run=self.id, start=start, end=end, parse=self.parse)
        second: Sequence[StagedFile] = ()
        if self.second is not None and coming.end is None:
            second = written.second
            check_unchanged(seen, self.main.last())
            before = self.second.last()
            if before is not None and before.batch >= commit.batch:
                hint = "only one run can fill a table; each batch is there once"
                raise BadArchive(f"another run committed batch {before.batch} to the second table meanwhile: {hint}")
            # Also without rows: otherwise a run could add its own to it after another one has done without.
            _commit(self.second, second, commit, before)
        _commit(self.main, written.main, commit, seen)
        return filled.plus(written.main, second), commit

    def _report(self, end: Mapping, filled: Filled, report: ReportProgress) -> None:
        done = sum(totals.rows for totals in filled.topics.values()) + filled.unparsed
        latest = self.source.reportLatestOffset() if report is not quiet else None
        try:
            left = None if latest is None else sum(max(int(at) - int(end.get(q, at)), 0) for q, at in latest.items())
        except (TypeError, ValueError):  # the offsets of stores are not numbers of messages
            left = None
        report(JobProgress(f"archiving to {self.name}", done, None if left is None else done + left, "messages"))


def _commit(table: ArchiveTable, files: Sequence[StagedFile], commit: TableCommit, seen: TableCommit | None) -> None:
    """Commit a batch once; `seen` is the last batch that this run saw in the table."""
    for _ in range(_TRIES_MAX):
        now = table.last()
        if now == commit:  # the answer to the try before was lost
            return
        check_unchanged(seen, now)
        try:
            table.append(files, commit)
            return
        except Conflict:
            continue
    raise BadArchive(f"batch {commit.batch} was not committed, the table changed {_TRIES_MAX} times: run again")
