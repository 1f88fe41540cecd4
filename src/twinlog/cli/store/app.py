"""`twinlog store dump|verify|compare|resend|repair`: what is in a store, is it sound, and are two equal."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.cli.shared.progress_bar import ProgressBar
from twinlog.cli.store.repair import repair
from twinlog.cli.store.resend import resend
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError
from twinlog.store.offline.compare import Comparison, compare_logs
from twinlog.store.offline.dump import dump_index, dump_log, dump_queues, dump_state, dump_tail
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.offline.verify import verify_store

UNREADABLE, UNSOUND = 2, 1

store = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Inspect a store directory, Twinlog's or Java's, running or stopped.",
)

Directory = Annotated[Path, typer.Argument(help="The storePathRootDir of a broker.", metavar="DIR")]
DirectoryOrTail = Annotated[
    Path, typer.Argument(help="The storePathRootDir of a broker, or a file tail-<begin>-<end>.", metavar="DIR")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Its broker.conf, if it sets several log directories or an index size."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


class Part(StrEnum):
    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    STATE = "state"


@store.command()
def dump(
    directory: DirectoryOrTail,
    part: Annotated[Part, typer.Option(help="What to show.")] = Part.LOG,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue id.")] = None,
    begin: Annotated[int | None, typer.Option("--from", help="Physical offset of the first record.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many records.")] = None,
    body: Annotated[bool, typer.Option("--body", help="Show bodies too.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print records, queues, index files or the state of a store, or the records of a tail that was set aside.

    Exit status 1 when the log has holes, 2 when the store is unreadable.
    """
    rows: Iterator[dict[str, Any]]
    with contextlib.nullcontext() if directory.is_file() else _open(directory, config) as opened:
        if opened is None:
            rows = _dump_tail(directory, topic=topic, queue_id=queue, begin=begin, limit=limit, with_body=body)
        elif part is Part.LOG:
            rows = dump_log(opened, topic=topic, queue_id=queue, begin=begin, limit=limit, with_body=body)
        elif part is Part.QUEUES:
            rows = dump_queues(opened, topic=topic)
        elif part is Part.INDEX:
            rows = dump_index(opened)
        else:
            rows = dump_state(opened)
        damaged = False
        with contextlib.suppress(BrokenPipeError):  # `| head` has read enough
            for row in rows:
                print(json.dumps(row, ensure_ascii=False) if as_json else _line(row))
                damaged = damaged or "hole" in row
            sys.stdout.flush()
    if damaged:
        raise typer.Exit(UNSOUND)


def _dump_tail(path: Path, **options: Any) -> Iterator[dict[str, Any]]:
    try:
        yield from dump_tail(path, **options)
    except StoreError as error:
        print(f"twinlog store: {error}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from error


@store.command()
def verify(directory: Directory, config: Config = None, as_json: AsJson = False) -> None:
    """Check every record, queue unit and index entry.

    Exit status 0 when the store is sound, 1 when it has problems, 2 when it is unreadable.
    """
    with _open(directory, config) as opened:
        log = opened.commit_log
        with ProgressBar(log.log_start, log.log_end) as progress:
            report = verify_store(opened, progress=progress.reached)
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


@store.command()
def compare(
    one: Annotated[Path, typer.Argument(help="The storePathRootDir of a broker.", metavar="A")],
    other: Annotated[Path, typer.Argument(help="The storePathRootDir of the other broker.", metavar="B")],
    config_one: Annotated[
        Path | None, typer.Option("--config-a", help="A's broker.conf, if it sets several log directories.")
    ] = None,
    config_other: Annotated[Path | None, typer.Option("--config-b", help="The same for B.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two commit logs byte by byte up to the end of the shorter one.

    Exit status 0 when all common bytes are equal, 1 when they differ or there are none, 2 when a store is unreadable.
    """
    with _open(one, config_one) as first, _open(other, config_other) as second:
        logs = first.commit_log, second.commit_log
        begin, end = max(log.log_start for log in logs), min(log.log_end for log in logs)
        with ProgressBar(begin, end) as progress:
            at = begin

            def advance(size: int) -> None:
                nonlocal at
                at += size
                progress.reached(at)

            found = compare_logs(*logs, advance)
    if as_json:
        fields = {name: getattr(found, name) for name in ("starts", "ends", "begin", "end", "differs_at")}
        print(json.dumps({"equal": found.is_equal} | fields | {"places": [str(place) for place in found.places]}))
    else:
        for directory, start, end in zip((one, other), found.starts, found.ends, strict=True):
            print(f"{directory}: log from {start} to {end}")
        print(_comparison_text(found))
    if not found.is_equal:
        raise typer.Exit(UNSOUND)


store.command()(resend)
store.command()(repair)


def _comparison_text(found: Comparison) -> str:
    if found.differs_at is not None:
        first, second = found.places
        return f"different at byte {found.differs_at}: A has {first}, B has {second}"
    if found.begin >= min(found.ends):
        return "nothing to compare: the logs have no byte in common"
    longer = "" if found.ends[0] == found.ends[1] else f"; {'A' if found.ends[0] > found.ends[1] else 'B'} is longer"
    more = f"{longer} by {abs(found.ends[0] - found.ends[1])} bytes" if longer else ""
    return f"equal: {found.end - found.begin} bytes from {found.begin} to {found.end} are the same{more}"


def _open(directory: Path, config: Path | None) -> StoreFiles:
    try:
        if config is None:
            return StoreFiles(directory)
        settings = dataclasses.replace(load_broker_conf(config).store, root_dir=str(directory))
        return StoreFiles(
            directory,
            commit_log_dirs=[Path(part) for part in settings.commit_log_dirs],
            index_slots=settings.index_slots,
            index_entries=settings.index_entries,
        )
    except (StoreError, SettingsError, OSError) as error:
        print(f"twinlog store: {error}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from error


def _line(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())
