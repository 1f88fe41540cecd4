"""`twinlog store repair`: brings damaged messages of a stopped store back from its twin."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from twinlog.cli.shared.connecting import EXPECTED_FAILURES, Connection, with_connection
from twinlog.cli.shared.stored_settings import stored_settings, topic_kinds
from twinlog.client import Admin, ClientOptions
from twinlog.metadata.errors import MetadataError
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError
from twinlog.store.log.segment import segment_size_of
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.repair import Fetch, RepairReport, log_source, repair_store

_DAMAGED, _UNREADABLE = 1, 2


@with_connection
def repair(
    connection: Connection,
    directory: Annotated[Path, typer.Argument(help="The storePathRootDir of a stopped broker.", metavar="DIR")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="HOST:PORT|DIR", help="Its master or replica (Java's or ours), or that one's store."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Its broker.conf, if it sets paths or index sizes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Bring damaged messages back from the twin, and make the queues agree with the log.

    Without --from only queues are repaired. What was damaged is kept in quarantine/ of the store. Exit status 0 when
    nothing is damaged any more, 1 when the twin does not have all of it, 2 when a store is unreadable.
    """
    try:
        settings = stored_settings(directory, config)
        if segment_size_of(map(Path, settings.commit_log_dirs)) is None:
            raise StoreError(f"{directory} has no commit log")
        with ExitStack() as stack:
            fetch = None if source is None else _source(source, stack, connection.options())
            kinds = topic_kinds(settings)
            report = repair_store(stack.enter_context(MessageStore.open(settings, topic_kind=kinds)), fetch)
    except (StoreError, SettingsError, MetadataError, *EXPECTED_FAILURES) as error:
        print(f"twinlog store repair: {error}", file=sys.stderr)
        raise typer.Exit(_UNREADABLE) from error
    _show(report, as_json, source)
    if report.missing:
        raise typer.Exit(_DAMAGED)


def _source(source: str, stack: ExitStack, options: ClientOptions) -> Fetch:
    if Path(source).is_dir():
        return log_source(stack.enter_context(StoreFiles(Path(source))).commit_log)
    return lambda begin, end: asyncio.run(_ask(source, options, begin, end))


async def _ask(address: str, options: ClientOptions, begin: int, end: int) -> bytes | None:
    """The records of another broker from one offset to another; None when it does not have them all."""
    data = b""
    async with Admin(address, options=options) as admin:
        while begin + len(data) < end:
            record = await admin.log_record(address, begin + len(data))
            if not record:
                return None
            data += record
    return data


def _show(report: RepairReport, as_json: bool, source: str | None) -> None:
    if as_json:
        print(json.dumps({name: getattr(report, name) for name in report.__slots__}))
        return
    for begin, end in report.restored:
        print(f"restored: log {begin} to {end}")
    for begin, end in report.missing:
        hint = "give its twin with --from" if source is None else f"{source} does not have it"
        print(f"still damaged: log {begin} to {end}; {hint}")
    print(
        f"{len(report.damaged)} damaged ranges, {len(report.restored)} restored with {report.records} messages, "
        f"{report.units} queue units written again" + (", the index built again" if report.index_rebuilt else "")
    )
