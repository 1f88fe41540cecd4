"""`twinlog replication rejoin`: cuts off the tail of a stopped replica's log that its master does not have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from twinlog.base.clock import wall_clock_ms
from twinlog.broker.replication.epoch_file import forget_epochs
from twinlog.cli.shared.stored_settings import stored_settings, topic_kinds
from twinlog.metadata.errors import MetadataError
from twinlog.settings.errors import SettingsError
from twinlog.settings.store import StoreSettings
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.scan.log_parts import part_at, records_end
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.walk import walk_log


class CutRefused(Exception):
    """An offset at which this log cannot be cut; the message names one at which it can."""


def rejoin(
    cut: Annotated[int, typer.Option("--cut", metavar="OFFSET", min=0, help="Keep the log before this byte.")],
    directory: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="The storePathRootDir of the replica.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Its broker.conf, if it sets paths or index sizes."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Cut the tail of a stopped replica's log, so that it may follow its master again.

    The tail is kept in a file of its own below set-aside/ of the store: nothing is deleted.
    """
    try:
        settings = _settings(directory, config)
        end, records = plan_cut(settings, cut)
        if end == cut:
            print(f"{settings.root_dir}: the log ends at {cut} already, nothing is cut")
            return
        print(f"{settings.root_dir}: {records} records, {end - cut} bytes from {cut} to {end}, are to be set aside")
        _confirm(yes)
        kept = cut_tail(settings, cut)
    except (StoreError, SettingsError, MetadataError, CutRefused, OSError) as error:
        print(f"twinlog replication rejoin: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    print(f"kept in {kept}")
    print(f"the log now ends at {cut}; start the replica, it joins its master from there")


def plan_cut(settings: StoreSettings, cut: int) -> tuple[int, int]:
    """(where the log ends now, records behind the cut); CutRefused when no record begins at `cut`."""
    root = Path(settings.root_dir)
    with StoreFiles(root, commit_log_dirs=[Path(part) for part in settings.commit_log_dirs]) as store:
        if store.is_live:
            raise CutRefused(f"{root} is in use by a running broker; stop it first")
        log = store.commit_log
        start, end = log.log_start, records_end(log)
        if not start <= cut <= end:
            raise CutRefused(f"--cut {cut} is outside of the log, which goes from {start} to {end}")
        if cut == end:
            return end, 0
        part = part_at(log, cut)
        if part is not None and part.begin != cut:
            raise CutRefused(
                f"--cut {cut} is inside of {part}: use --cut {part.begin} to cut it off as well, "
                f"or --cut {min(part.end, end)} to keep it"
            )
        return end, sum(len(one) for one in walk_log(log, cut, check_crc=False) if isinstance(one, ScannedRecords))


def cut_tail(settings: StoreSettings, cut: int) -> Path:
    """Recover the store, keep its tail in a file and cut it off; returns the file. It may follow any master then."""
    with MessageStore.open(settings, role="SLAVE", topic_kind=topic_kinds(settings)) as store:
        kept = store.cut_tail(cut, wall_clock_ms())
    forget_epochs(Path(settings.root_dir))
    return kept


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CutRefused("nothing was changed: the input is not a terminal, so confirm with --yes")
    if not typer.confirm("These may be the only copies of acknowledged messages. Cut?"):
        raise CutRefused("nothing was changed")


def _settings(directory: Path | None, config: Path | None) -> StoreSettings:
    """The store's settings: sizes as its files have them, the rest from its configuration file if there is one."""
    if directory is None and config is None:
        raise CutRefused("name the replica's store with --store DIR, or its broker.conf with -c FILE")
    return stored_settings(directory, config)
