"""`twinlog store dump|verify DIR`: what is in a store, and whether it is sound. Neither changes anything."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.store.dump import dump_index, dump_log, dump_queues, dump_state
from twinlog.store.errors import StoreError
from twinlog.store.offline import OfflineStore
from twinlog.store.verify import verify_store

UNREADABLE, UNSOUND = 2, 1

store = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look into a store directory, Twinlog's or Java's, live or stopped.",
)

Directory = Annotated[Path, typer.Argument(help="The storePathRootDir of a broker.", metavar="DIR")]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Its broker.conf, needed for several log directories or another index size."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


class Part(StrEnum):
    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    STATE = "state"


@store.command()
def dump(
    directory: Directory,
    part: Annotated[Part, typer.Option(help="What to show.")] = Part.LOG,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue id.")] = None,
    begin: Annotated[int | None, typer.Option("--from", help="Physical offset of the first record.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many records.")] = None,
    body: Annotated[bool, typer.Option("--body", help="Show bodies, too.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print records, queues, index files or the state of a store; exit 1 when the log has holes, 2 when unreadable."""
    with _open(directory, config) as opened:
        rows: Iterator[dict[str, Any]]
        if part is Part.LOG:
            rows = dump_log(opened, topic=topic, queue_id=queue, begin=begin, limit=limit, with_body=body)
        elif part is Part.QUEUES:
            rows = dump_queues(opened, topic=topic)
        elif part is Part.INDEX:
            rows = dump_index(opened)
        else:
            rows = dump_state(opened)
        damaged = False
        with contextlib.suppress(BrokenPipeError):  # `| head` has seen enough
            for row in rows:
                print(json.dumps(row, ensure_ascii=False) if as_json else _line(row))
                damaged = damaged or "hole" in row
            sys.stdout.flush()
    if damaged:
        raise typer.Exit(UNSOUND)


@store.command()
def verify(directory: Directory, config: Config = None, as_json: AsJson = False) -> None:
    """Check every record, queue unit and index entry; exit 0 when all is well, 1 when not, 2 when unreadable."""
    with _open(directory, config) as opened:
        report = verify_store(opened)
    if as_json:
        fields = {name: getattr(report, name) for name in report.__slots__}
        print(json.dumps({"ok": report.ok} | fields, ensure_ascii=False))
    else:
        for note in report.notes:
            print(f"note: {note}")
        for problem in report.problems:
            print(f"problem: {problem}")
        print(
            f"{report.records} records in the log from {report.log_start} to {report.log_end}, "
            f"{report.units} units in {report.queues} queues, {report.index_entries} index entries: "
            + ("sound" if report.ok else f"{report.problem_count} problems")
        )
    if not report.ok:
        raise typer.Exit(UNSOUND)


def _open(directory: Path, config: Path | None) -> OfflineStore:
    try:
        if config is None:
            return OfflineStore(directory)
        settings = load_broker_conf(config).store
        places = [Path(part.strip()) for part in (settings.commit_log_dir_given or "").split(",") if part.strip()]
        return OfflineStore(
            directory,
            commit_log_dirs=places,
            index_slots=settings.index_slots,
            index_entries=settings.index_entries,
        )
    except (StoreError, SettingsError, OSError) as error:
        print(f"twinlog store: {error}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from error


def _line(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())
