"""Fills an archive on a lake: plans with the source's reader, lets tasks write, and adds a record for each batch.

Spark's streaming is not used: its checkpoint would need Hadoop's connector for the store, and would be a second place
that says how far the archive is. The reader that plans is the same one.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.lakes.chain import Chain
from twinlog.spark.jobs.archive.lakes.records import ARCHIVING, BATCH, COMMITS, END, Placed, plan_batch
from twinlog.spark.jobs.archive.lakes.runs import RUNS, beating, claim, remove_beats
from twinlog.spark.jobs.archive.layout import (
    HEADER_FILE,
    STAGING,
    ArchiveHeader,
    BadArchive,
    StagedFile,
    TopicTotals,
    check_fits,
    decode_header,
    encode_header,
    topic_of,
)
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

_POLL_S = 0.3  # between two looks at whether the run shall end


class Source(Protocol):
    """The planning half of a stream reader."""

    def initialOffset(self) -> dict: ...
    def getDefaultReadLimit(self) -> Any: ...
    def latestOffset(self, start: dict, limit: Any) -> dict: ...
    def reportLatestOffset(self) -> dict | None: ...
    def prepareForTriggerAvailableNow(self) -> None: ...
    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]: ...


WriteBatch = Callable[[Sequence["InputPartition"], str], list[StagedFile]]
"""(partitions, folder): write the messages of these partitions as files of this folder."""


@dataclass(frozen=True, slots=True)
class Added:
    """What one run added: batches with messages, and what each topic got."""

    batches: int = 0
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)

    def with_files(self, adds: Sequence[Placed]) -> Added:
        topics = dict(self.topics)
        for file in adds:
            topic = topic_of(file.partition)
            topics[topic] = topics.get(topic, TopicTotals()) + TopicTotals(file.rows, 1, file.bytes)
        return Added(self.batches + bool(adds), topics)


def fill(
    lake: Lake,
    job: ArchiveJob,
    source: Source,
    write: WriteBatch,
    report: ReportProgress = quiet,
    is_over: Callable[[], bool] = lambda: False,
) -> Added:
    """Add what is new."""
    open_header(lake, job.header())
    run = uuid.uuid4().hex
    chain = Chain(lake, ARCHIVING, run)
    with beating(lake, ARCHIVING, run):
        owner = claim(lake, chain, ARCHIVING)
        chain.begin(owner, _first_position(lake, chain, source))
        tidy(lake, chain, ARCHIVING, run)
        folder = f"{STAGING}/{ARCHIVING}-{run}"
        added = _fill(chain, job, source, write, folder, report, is_over)
        chain.add(END)
        remove_staged(lake, f"{folder}/")
    return added


def _first_position(lake: Lake, chain: Chain, source: Source) -> dict | None:
    """Where a new archive begins; None for one that has a position. Files that no record names are not a new one."""
    if chain.state.position is None and (files := lake.list("topic=", 1)):
        chain.refresh()  # another run may have begun meanwhile
        if chain.state.position is None:
            hint = "restore _commits/ from a backup, or archive to another directory"
            raise BadArchive(
                f"{lake.root} has files ({files[0].name}), and its records in {COMMITS}/ are gone: from the beginning "
                f"it would hold messages twice; {hint}"
            )
    return None if chain.state.position is not None else source.initialOffset()


def _fill(
    chain: Chain,
    job: ArchiveJob,
    source: Source,
    write: WriteBatch,
    folder: str,
    report: ReportProgress,
    is_over: Callable[[], bool],
) -> Added:
    every_s = None if job.every is None else every_seconds(job.every)
    added = Added()
    if every_s is None:
        source.prepareForTriggerAvailableNow()
    while not is_over():
        began = time.monotonic()
        start = dict(chain.state.position or {})
        end = source.latestOffset(start, source.getDefaultReadLimit())
        if end != start:
            parts = source.partitions(start, end)
            batch = chain.state.batch + 1
            adds = plan_batch(batch, write(parts, f"{folder}/{batch:012d}") if parts else [])
            chain.finish(chain.add(BATCH, batch=batch, position=end, adds=adds))
            added = added.with_files(adds)
            _report(job, source, end, added, report)
        elif every_s is None:
            break
        if every_s is not None:
            wait(began + every_s, is_over)
    return added


def tidy(lake: Lake, chain: Chain, role: str, run: str) -> None:
    """Finish what runs have recorded, and remove what earlier ones staged and did not record; after this one has begun.

    A run of the other kind may be at work, or begin meanwhile. Finishing its last record beside it does no harm, but
    what it has staged and not recorded is kept: whoever has a file in the listing began before it, so the records that
    are read after the listing show all of them.
    """
    for record in chain.state.unfinished:
        chain.finish(record)
    staged = [entry.name for entry in lake.list(f"{STAGING}/")]
    chain.refresh()
    others = [one for one in chain.state.runs if one != role and chain.state.owner(one)]
    kept = tuple(f"{STAGING}/{one}-" for one in (*others, f"{role}-{run}"))
    lake.delete(name for name in staged if not name.startswith(kept))
    remove_beats(lake, role, run)


def remove_staged(lake: Lake, folder: str) -> None:
    """Remove what attempts that failed left in a folder."""
    lake.delete(entry.name for entry in lake.list(folder))


def open_header(lake: Lake, wanted: ArchiveHeader) -> None:
    """Create the archive, or check that it takes what the job gives."""
    found = load_header(lake)
    if found is None and lake.put_if_absent(HEADER_FILE, encode_header(wanted)):
        found = wanted
    found = found or existing_header(lake)
    check_fits(lake.root, found, wanted)
    lake.check_exclusive(HEADER_FILE)


def load_header(lake: Lake) -> ArchiveHeader | None:
    """What the archive holds; None if there is nothing."""
    data = lake.read(HEADER_FILE)
    if data is not None:
        return decode_header(data, lake.root / HEADER_FILE)
    strangers = [entry.name for entry in lake.list(count_max=20) if not entry.name.startswith((RUNS, "_aside"))]
    if strangers:
        hint = "give an empty directory, or one that an archive was written to"
        raise BadArchive(f"{lake.root} is not an archive, it holds {', '.join(strangers[:3])}: {hint}")
    return None


def existing_header(lake: Lake) -> ArchiveHeader:
    found = load_header(lake)
    if found is None:
        raise BadArchive(
            f"there is no archive {lake.root}: give the directory that `twinlog pipeline archive` wrote to"
        )
    return found


def every_seconds(text: str) -> float:
    """Seconds of a trigger of Spark's: 10 seconds, 500 milliseconds, 1 minute."""
    found = re.fullmatch(r"\s*(\d+)\s*(milliseconds?|seconds?|minutes?|hours?)\s*", text)
    if found is None:
        raise BadArchive(f"every {text!r} is not a time: write for example 10 seconds")
    units = {"m": 0.001, "s": 1.0, "h": 3600.0}
    return int(found[1]) * (60.0 if found[2].startswith("minute") else units[found[2][0]])


def wait(until: float, is_over: Callable[[], bool]) -> None:
    while not is_over() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))


def _report(job: ArchiveJob, source: Source, end: dict, added: Added, report: ReportProgress) -> None:
    done = sum(totals.rows for totals in added.topics.values())
    latest = source.reportLatestOffset() if job.name_server and report is not quiet else None
    left = None if latest is None else sum(max(int(at) - int(end.get(queue, at)), 0) for queue, at in latest.items())
    text = f"archiving to {job.place.name}, batch {added.batches}"
    report(JobProgress(text, done, None if left is None else done + left, "messages"))
