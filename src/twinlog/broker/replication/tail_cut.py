"""Carries out the steps of `replication/replica/cut_plan.py` on a store that nobody else has open.

config/twinlogCut has the intention. A broker with failover writes it and starts again; the start carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.atomic_file import replace_file, sync_directory
from twinlog.base.safe_files import read_file
from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.broker.replication.noted_tails import note_tail
from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.replication.digests import ByteRange, range_digest
from twinlog.replication.errors import ReplicationError
from twinlog.replication.replica.cut_plan import CutIntent, CutStep, plan_cut
from twinlog.store.errors import StoreUnusable, system_errors_as
from twinlog.store.message_store import MessageStore
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.settings.store import StoreSettings

log = get_logger(__name__)
_CHECKED_BYTES = 1024 * 1024
_NAME = Path("config", "twinlogCut")


class RestartToCut(Exception):
    """The broker starts again, since its log can be cut only while nobody uses it."""

    def __init__(self, intent: CutIntent) -> None:
        super().__init__(
            f"the log differs from that of {intent.master_address}, the master of epoch {intent.master_epoch}, from "
            f"offset {intent.cut_at} on: the broker starts again to set its tail aside and cut it"
        )


class IntentBroken(ReplicationError):
    def __init__(self, path: Path, cause: object) -> None:
        super().__init__(
            f"{path} does not parse: {cause}; it names the offset at which the log is to be cut. Move it away: the "
            "broker finds that out again when it joins its master"
        )


def begin_cut(store: MessageStore, cut_at: int, master_address: str, master_epoch: int, now_ms: int) -> CutIntent:
    """Make it durable that the log of this running broker is to be cut; the next start does it."""
    begin = max(cut_at, store.log_start)
    end = min(store.log_end, begin + _CHECKED_BYTES)
    digest = range_digest(store.commit_log, ByteRange(begin, end)) if begin < end else None
    if digest is None:
        raise ReplicationError(f"the log ends at {store.log_end}, so nothing is to be cut at {cut_at}")
    intent = CutIntent(begin, end, digest, master_address, master_epoch, now_ms)
    replace_file(store.root / _NAME, [msgspec.json.encode(intent), b"\n"], store.settings.modes)
    return intent


def load_intent(root: Path) -> CutIntent | None:
    path = root / _NAME
    try:
        return msgspec.json.decode(read_file(path), type=CutIntent)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise IntentBroken(path, error) from error


def finish_cut(
    settings: StoreSettings,
    now_ms: int,
    after: Callable[[CutStep], None] = lambda _: None,
    *,
    is_wanted: bool = True,
) -> Path | None:
    """Cut the log if that was begun; returns the file of the tail. `after` is called after every step.

    `is_wanted`: automatic failover is still on.
    """
    root = Path(settings.root_dir)
    with system_errors_as(StoreUnusable, root):
        intent = load_intent(root)
    if intent is None:
        return None
    tables = open_tables(root / "config", now_ms, modes=settings.modes)
    tables.load()
    with MessageStore.open(settings, role="SLAVE", topic_kind=_kinds(tables)) as store:
        return _Cut(store, tables, intent, now_ms).run(after, is_wanted=is_wanted)


class _Cut:
    def __init__(self, store: MessageStore, tables: MetadataTables, intent: CutIntent, now_ms: int) -> None:
        self._store = store
        self._tables = tables
        self._intent = intent
        self._now_ms = now_ms
        self._kept: Path | None = None

    def run(self, after: Callable[[CutStep], None], *, is_wanted: bool) -> Path | None:
        actions = {
            CutStep.SET_ASIDE: self._set_aside,
            CutStep.CUT: self._cut,
            CutStep.CAP_OFFSETS: self._cap_offsets,
            CutStep.NOTE: self._note,
            CutStep.FORGET: self._forget,
        }
        end, checked = self._store.log_end, ByteRange(self._intent.cut_at, self._intent.checked_end)
        digest = range_digest(self._store.commit_log, checked) if checked.end <= end else None
        steps = plan_cut(self._intent, digest, is_wanted=is_wanted)
        if not is_wanted and digest == self._intent.digest:
            log.warning("failover is off: a cut of the log that was begun is not made", cut_at=self._intent.cut_at)
        for step in steps:
            actions[step]()
            after(step)
        if self._kept is not None:
            log.warning(
                "the tail of the log was set aside: the master that replaced this broker does not have it",
                cut_at=self._intent.cut_at,
                bytes=end - self._intent.cut_at,
                file=str(self._kept),
                master=self._intent.master_address,
                epoch=self._intent.master_epoch,
            )
        return self._kept

    def _set_aside(self) -> None:
        self._kept = self._store.set_tail_aside(self._intent.cut_at, self._intent.at_ms)

    def _cut(self) -> None:
        self._store.truncate(self._intent.cut_at, durable=True)

    def _cap_offsets(self) -> None:
        """Consumers and delay levels go on with what the master sends here next."""
        store, tables = self._store, self._tables

        def end_of(topic: str, queue_id: int) -> int | None:
            return store.max_offset(topic, queue_id) if store.queues.get(topic, queue_id) is not None else None

        capped = tables.offsets.cap(end_of, self._now_ms)
        for level, offset in list(tables.delay_offsets.rows.items()):
            if (end := end_of(SCHEDULE_TOPIC, level - 1)) is not None and offset > end:
                tables.delay_offsets.update(level, end, self._now_ms)
                capped += 1
        tables.save()
        if capped:
            log.info("offsets behind the cut were set back", offsets=capped)

    def _note(self) -> None:
        intent, store = self._intent, self._store
        note_tail(store.root, intent.cut_at, intent.at_ms, intent.master_epoch, store.settings.modes)

    def _forget(self) -> None:
        path = self._store.root / _NAME
        path.unlink(missing_ok=True)
        sync_directory(path.parent)  # it must not come back when the log has grown again


def _kinds(tables: MetadataTables) -> Callable[[str], str]:
    def topic_kind(topic: str) -> str:
        config = tables.topics.get(topic)
        return config.attributes.get("queue.type", "SimpleCQ") if config is not None else "SimpleCQ"

    return topic_kind
