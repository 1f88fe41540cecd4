"""What a commit of a batch writes into the table's own metadata, and how that decides about the next batch; pure.

    twinlog.batch     the number of the batch, from 0
    twinlog.run       the run that made it
    twinlog.from      where the source was before the batch
    twinlog.offsets   where it was after it: the next batch begins there
    twinlog.parse     how bodies were parsed, if they were

The table is the only place that says how far an archive is; there is no checkpoint beside it that could be lost, or be
ahead of it. A table that is rolled back to an earlier version continues from the offsets of that version.

With a parser there are two tables. The second one, of rows that do not parse, is committed first, also if a batch has
no such rows: of two runs, one gets the number there, and the other adds to neither table. If a run is killed in
between, the next one repeats exactly that batch, and only the main table lacks it:

    second table commits batch 7        the main table ends with batch 6: batch 7 is repeated, from and to where the
    main table commits batch 7          second table has it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinlog.spark.jobs.archive.layout import BadArchive

PREFIX = "twinlog."
Offsets = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One batch, as the table's metadata has it."""

    batch: int
    run: str
    start: Offsets
    end: Offsets
    parse: str = ""

    def encode(self) -> dict[str, str]:
        found = {"batch": str(self.batch), "run": self.run, "parse": self.parse}
        found |= {"from": _offsets_text(self.start), "offsets": _offsets_text(self.end)}
        return {f"{PREFIX}{name}": value for name, value in found.items() if value}


def decode_commit(properties: Mapping[str, Any]) -> TableCommit | None:
    """The batch that a commit's properties name; None for a commit of somebody else."""
    found = {key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)}
    if not {"batch", "offsets"} <= found.keys():
        return None
    try:
        return TableCommit(
            batch=int(found["batch"]),
            run=str(found.get("run", "")),
            start=dict(json.loads(found.get("from", "{}"))),
            end=dict(json.loads(found["offsets"])),
            parse=str(found.get("parse", "")),
        )
    except (TypeError, ValueError) as error:
        hint = "roll the table back to the version before, then run again"
        raise BadArchive(f"a commit of the table has properties that cannot be read ({error}): {hint}") from error


@dataclass(frozen=True, slots=True)
class NextBatch:
    """What a run does first: `end` is fixed if the batch was begun by a run that was killed."""

    batch: int
    start: Offsets | None  # None: where the source begins
    end: Offsets | None = None


def plan_next(main: TableCommit | None, second: TableCommit | None, parse: str) -> NextBatch:
    """The batch after the last one; `second` is the last commit to the table of rows that do not parse."""
    done = -1 if main is None else main.batch
    begun = second is not None and second.batch > done
    if not begun or second is None:
        return NextBatch(done + 1, None if main is None else main.end)
    if second.batch != done + 1 or (main is not None and second.start != main.end):
        hint = "was one of them rolled back, or filled by another archive? Roll back the other too, or remove both"
        raise BadArchive(f"the main table ends with batch {done}, the second with batch {second.batch}: {hint}")
    if second.parse != parse:
        hint = "run once with the --parse of before, which completes it; then change it"
        raise BadArchive(f"batch {second.batch} is in the second table only, and was parsed in another way: {hint}")
    return NextBatch(second.batch, second.start, second.end)


def check_not_begun(main: TableCommit | None, second: TableCommit | None, where: object) -> None:
    """BadArchive if a run that was killed has begun the next batch in a second table that this run does not fill."""
    if second is None or not second.parse:
        return
    if second.batch == (0 if main is None else main.batch + 1) and (main is None or second.start == main.end):
        hint = "run once with the --parse and --unparsed of before, which completes it; then change them"
        raise BadArchive(f"rows of batch {second.batch} are in {where}, and not in the main table: {hint}")


def check_unchanged(seen: TableCommit | None, now: TableCommit | None) -> None:
    """BadArchive if a batch arrived, or was taken away, since this run looked last."""
    if seen == now:
        return
    if now is None or (seen is not None and now.batch < seen.batch):
        raise BadArchive("the table was rolled back while this run filled it: run again, it continues from there")
    hint = "only one run can fill a table; each batch is there once"
    raise BadArchive(f"another run (…{now.run[-8:]}) committed batch {now.batch} meanwhile: {hint}")


def _offsets_text(offsets: Offsets) -> str:
    return json.dumps(offsets, sort_keys=True, separators=(",", ":"))
