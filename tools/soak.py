"""`make soak`: every row of docs/reliability.md in its long form, and one table of what was seen.

    python tools/soak.py [--row TEXT] [--side twinlog|java|both] [--rounds N] [--seed N] [--plan]
                         [--json FILE [--resume]]

`--row` takes the row of that name, or else those whose names contain the text. `--rounds` replaces the number of rounds
of each, for less time. `--json` has the results after every row; with `--resume`, rows that it has as held or skipped
are not run again. `--plan` shows what would run, and how long it takes. A row that fails prints its seed, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import inspect
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults.group import JAVA, TWINLOG
from tests.faults.rows.table import ROWS, Row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", default="", help="only the row of this name, or rows whose names contain it")
    parser.add_argument("--side", choices=[TWINLOG, JAVA, "both"], default=TWINLOG)
    parser.add_argument("--rounds", type=int, help="instead of the rounds of each row")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    parser.add_argument("--resume", action="store_true", help="keep what the file of --json has as held or skipped")
    parser.add_argument("--plan", action="store_true", help="show the rows and their minutes, and end")
    given = parser.parse_args()
    if given.resume and not given.json:
        parser.error("--resume needs the file of the run before: --json FILE")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the servers end with us
    sides = [TWINLOG, JAVA] if given.side == "both" else [given.side]
    rows = [row for row in ROWS if row.name == given.row] or [row for row in ROWS if given.row in row.name]
    results = kept_results(given.json) if given.resume else []
    done = {(one["row"], one["side"]) for one in results}
    plan = [(row, side) for row in rows for side in sides if side in row.sides and (row.name, side) not in done]
    print_plan(plan, len(done), one_by_one=given.plan)
    if given.plan:
        return
    for number, (row, side) in enumerate(plan):
        left = minutes_of(plan[number:])
        about = f"about {row.minutes:g} of {left:g} minutes that are left"
        print(f"{row.name}, {side}, seed {given.seed}: {about} ...", file=sys.stderr, flush=True)
        results.append(play(row, side, given.seed, given.rounds))
        print(f"  {results[-1]['result']} in {float(results[-1]['seconds']) / 60:.1f} minutes", file=sys.stderr)
        if given.json:  # after each row: they take hours
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)
    print(f"{sum(float(one['seconds']) for one in results) / 60:.0f} minutes in all")
    sys.exit(any(result["result"] == "FAILED" for result in results))


def kept_results(path: Path) -> list[dict[str, str]]:
    """What an earlier run has finished; a row that failed is run again."""
    found = json.loads(path.read_text()) if path.exists() else []
    return [one for one in found if one["result"] != "FAILED"]


def minutes_of(plan: list[tuple[Row, str]]) -> float:
    return sum(row.minutes for row, _ in plan)


def print_plan(plan: list[tuple[Row, str]], kept: int, *, one_by_one: bool) -> None:
    if one_by_one:
        for row, side in plan:
            print(f"{row.minutes:5g} min  {row.name}, {side}")
    total = f"{len(plan)} rows, about {minutes_of(plan):g} minutes on two cores that do nothing else"
    print(total + (f"; {kept} are kept from before" if kept else ""), flush=True)


def play(row: Row, side: str, seed: int, rounds: int | None) -> dict[str, str]:
    """What became of one row: held, FAILED or skipped, and its numbers."""
    lengths = dict(row.long)
    if rounds and "rounds" in inspect.signature(row.run).parameters:
        lengths["rounds"] = rounds
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twinlog-soak-", ignore_cleanup_errors=True) as home:
        try:
            result, numbers = "held", row.run(Path(home), seed, side, **lengths)
        except pytest.skip.Exception as reason:
            result, numbers = "skipped", str(reason)
        except Exception as error:
            result, numbers = "FAILED", f"seed {seed}: {type(error).__name__}: {error}"
    done = {"row": row.name, "side": side, "rounds": str(lengths.get("rounds", 1)), "result": result}
    return {**done, "seconds": f"{time.monotonic() - began:.0f}", "numbers": numbers}


def print_table(results: list[dict[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=True)
    for column in ("row", "side", "rounds", "result", "seconds", "numbers"):
        table.add_column(column)
    for result in results:
        table.add_row(*(result[column] for column in ("row", "side", "rounds", "result", "seconds", "numbers")))
    Console(width=160).print(table, markup=False)


if __name__ == "__main__":
    main()
