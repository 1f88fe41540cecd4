"""The replica's timed task: every ten seconds it makes its metadata equal to the master's.

One request asks a Twinlog master for what changed; a round without changes moves a few hundred bytes whatever the
size of the tables. A Java master is asked for its tables as a Java replica asks, one request for each kind, in
Java's order. A kind that fails does not keep the others from being asked. A round without changes writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from twinlog.base.addresses import VIP_PORT_BELOW
from twinlog.metadata.errors import BrokenSnapshot, MetadataError
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.tables import MetadataTables
from twinlog.net.connecting import below
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.net.pool import ConnectionPool
from twinlog.replication.errors import JoinRefused, ReplicationError
from twinlog.replication.master_epoch import MASTER_EPOCH, SeenEpochs
from twinlog.replication.metadata.delta import decode_changes, decode_delta, parse_held
from twinlog.replication.metadata.kinds import KIND_BY_NAME, KINDS, OFFSETS, Kind, table_of
from twinlog.replication.metadata.table_pages import TablePages, decode_answer
from twinlog.replication.replica.metadata_follower import Follower
from twinlog.replication.replica.metadata_status import MasterRefused, SyncStatus, reason_to_skip
from twinlog.replication.secret import prove
from twinlog.settings.replication import ReplicationSettings
from twinlog.telemetry.fence import error_text
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import DataVersion
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.numbers import is_natural
from twinlog.wire.twinlog_codes import TwinlogCode

log = get_logger(__name__)
_TIMEOUT_MS = 3000
_RETRY_MS = 1000  # while the master does not answer
_CARRIED_ROWS = 2000
_SyncErrors = (NetError, OSError, MetadataError, WireError, JoinRefused)


@dataclass(frozen=True, slots=True)
class ExtraKind:
    """A kind of metadata that is not a table, such as the timer's: `adopt` gets the body of the answer."""

    name: str
    code: int
    adopt: Callable[[bytes], bool]
    on_vip_port: bool = True


class FetchedKind(Protocol):
    """A kind that asks in its own way, such as accounts, whose rows hold secrets."""

    name: str

    async def fetch(self, pool: ConnectionPool, master: str) -> tuple[bool, int]:
        """(whether something changed here, bytes received)."""
        ...


class MetadataSyncService:
    """Follows the master's metadata until cancelled."""

    def __init__(
        self,
        settings: Callable[[], ReplicationSettings],
        tables: MetadataTables,
        pool: ConnectionPool,
        *,
        own_address: str,
        clock_ms: Callable[[], int],
        extra_kinds: Sequence[ExtraKind] = (),
        fetched_kinds: Sequence[FetchedKind] = (),
        on_changed: Callable[[str], None] = lambda kind: None,
        epochs: SeenEpochs | None = None,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._pool = pool
        self._own_address = own_address
        self._clock_ms = clock_ms
        self._extra_kinds = extra_kinds
        self._fetched_kinds = fetched_kinds
        self._on_changed = on_changed
        self._epochs = epochs
        self._master: str | None = None
        self._wake = asyncio.Event()
        self._followers = {kind: Follower(kind) for kind in KIND_BY_NAME}
        self._finished: set[str] = set()  # kinds that succeeded or failed in this round
        self._changed: set[str] = set()  # kinds that this round changed
        self._unexpected: Exception | None = None  # the first error of this round that is not one of _SyncErrors
        self.status = SyncStatus()

    def master_is_at(self, address: str | None) -> None:
        """Follow this master from now on; None pauses."""
        if address == self._master:
            return
        self._master = address
        for follower in self._followers.values():
            follower.forget()
        self._wake.set()

    def held(self) -> dict[str, str]:
        """Which revision of each of a Twinlog master's tables is in ours."""
        return {kind: str(follower.held) for kind, follower in self._followers.items()}

    def resume_from(self, held: Mapping[str, str]) -> None:
        """Ask this master only for what changed since then; for tables that were kept together with `held`."""
        for kind, text in held.items():
            if kind in self._followers:
                self._followers[kind].held = parse_held(text)

    def wake(self) -> None:
        """Begin a round now: the master has sent that something changed."""
        self._wake.set()

    async def run(self) -> None:
        first = True
        while True:
            self._wake.clear()
            skipped = reason_to_skip(self._master, self._own_address)
            if skipped is not None:
                self.status.skipped, first = skipped, True
                await self._wake.wait()
                continue
            if first:
                await asyncio.sleep(self._settings().metadata_first_delay_ms / 1000)
                first = False
                continue  # the master may have changed meanwhile
            reached = await self.sync()
            wait_ms = self._settings().metadata_interval_ms
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((wait_ms if reached else min(wait_ms, _RETRY_MS)) / 1000):
                    await self._wake.wait()

    async def sync(self) -> bool:
        """One round over all kinds; whether the master was reached. Failures are counted and logged.

        An unexpected error is raised after every kind had its turn, so that one kind does not stop the others.
        """
        master = self._master
        if reason_to_skip(master, self._own_address) is not None or master is None:
            return True
        self.status.rounds += 1
        self.status.skipped = ""
        self._finished, self._changed = set(), set()
        before = {kind: table_of(self._tables, kind).version for kind in KIND_BY_NAME}
        self._unexpected = None
        try:
            if not await self._sync_with_twinlog(await self._proven(master)):
                await self._sync_with_java(master)
            for extra in self._extra_kinds:
                await self._extra(extra, master)
            for fetched in self._fetched_kinds:
                await self._proven(master)  # the connection may be another one by now
                await self._fetch(fetched, master)
        except _SyncErrors as error:
            if isinstance(error, RequestTimeout):
                self._pool.renew(master)  # perhaps only the connection is dead
            missed = [self.status.kind(kind.name) for kind in KINDS if kind.name not in self._finished]
            if any(status.error != str(error) for status in missed):
                log.warning("metadata was not synchronised", master=master, error=str(error))
            for status in missed:
                status.failed(self._clock_ms(), error)
            return False
        finally:
            self._log_changes(master, before)
        if self._unexpected is not None:
            raise self._unexpected
        return True

    async def _proven(self, master: str) -> Connection:
        """The connection to the master, which has proven haSharedSecret if there is one."""
        connection = await self._pool.get(master)
        if (secret := self._settings().shared_secret) is not None:
            await prove(connection, secret)
        return connection

    def _log_changes(self, master: str, before: Mapping[str, DataVersion]) -> None:
        """One line for each kind that the round changed, however many pages it came in."""
        for kind, version in before.items():
            if kind in self._changed:
                now = table_of(self._tables, kind).version
                log.info(
                    "metadata changed",
                    kind=kind,
                    master=master,
                    before=_version_text(version),
                    now=_version_text(now),
                )

    # -- a Twinlog master --------------------------------------------------------------------------

    async def _sync_with_twinlog(self, connection: Connection) -> bool:
        """Apply what changed; False when the master is Java."""
        if connection.attributes.get("is_java"):
            return False
        for kind, follower in self._followers.items():
            follower.begin_round(table_of(self._tables, kind))
        asked = list(self._followers)
        while asked:
            fields = {kind: str(self._followers[kind].held) for kind in asked}
            if self._settings().metadata_pushed:
                fields["push"] = "true"
            if self._epochs is not None:
                fields[MASTER_EPOCH] = str(self._epochs.now.seen)
            answer = await connection.request(TwinlogCode.METADATA_CHANGES, fields, timeout_ms=_TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                connection.attributes["is_java"] = True
                return False
            if answer.code != ResponseCode.SUCCESS:
                raise MasterRefused("changes", answer.code, answer.remark)
            self._check_epoch(answer)
            deltas = decode_changes(answer.body)
            asked = [kind for kind in asked if await self._apply(kind, deltas.get(kind))]
        await self._carry_back(connection)
        return True

    def _check_epoch(self, answer: Command) -> None:
        """Refuse the tables of a master that was replaced."""
        epoch = (answer.fields or {}).get(MASTER_EPOCH, "0")
        if self._epochs is not None and is_natural(epoch) and int(epoch) < self._epochs.now.seen:
            raise MasterRefused("changes", answer.code, f"its epoch {epoch} is lower than {self._epochs.now.seen}")

    async def _apply(self, kind: str, raw: msgspec.Raw | None) -> bool:
        """Apply a page of one kind, with its own success or failure; whether there is another page."""
        follower, changed, size, more = self._followers[kind], False, 0, False
        try:
            if raw is not None:
                delta, before = decode_delta(kind, raw), follower.held
                size = sum(memoryview(row).nbytes for row in delta.changed.values())
                changed, more = follower.take(delta, table_of(self._tables, kind)), delta.more
                if more and follower.held == before:
                    raise BrokenSnapshot(kind, f"more was promised after revision {before.revision}, none of it came")
            await self._succeeded(kind, changed, size)
        except _SyncErrors as error:
            if not isinstance(error, OSError):  # OSError: the disk is full; the table is right, and saved later
                follower.forget()
            self._failed(kind, error)
            return False
        except Exception as error:
            follower.forget()
            self._failed_unexpectedly(kind, error)
            return False
        return more

    async def _carry_back(self, connection: Connection) -> None:
        """Send the master the offsets that consumers committed here while it was away."""
        rows, raised = list(self._tables.offsets.ahead().items()), 0
        for first in range(0, len(rows), _CARRIED_ROWS):
            body = msgspec.json.encode(dict(rows[first : first + _CARRIED_ROWS]))
            answer = await connection.request(TwinlogCode.OFFSETS_CARRIED_BACK, body=body, timeout_ms=_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                self._failed(OFFSETS.name, MasterRefused("offsets to be carried back", answer.code, answer.remark))
                return
            raised += int(text) if is_natural(text := (answer.fields or {}).get("raised") or "") else 0
        if raised:  # rows of groups that the master does not have are offered again in every round
            log.info("offsets were carried back to the master", raised=raised)

    # -- a Java master -----------------------------------------------------------------------------

    async def _sync_with_java(self, master: str) -> None:
        for kind in KINDS:
            # An answer that breaks the protocol closes its connection: each kind gets an open one.
            connection = await self._pool.get(master)
            await self._kind_from_java(kind, master, connection)

    async def _kind_from_java(self, kind: Kind, master: str, connection: Connection) -> None:
        """One kind, with its own success or failure."""
        table = table_of(self._tables, kind.name)
        try:
            asked = await self._pool.get(below(master, VIP_PORT_BELOW)) if kind.on_vip_port else connection
            loaded, size = await self._table_from_java(kind, asked, table)
            await self._succeeded(kind.name, table.adopt_loaded(loaded), size)
        except _SyncErrors as error:
            if isinstance(error, MasterRefused) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return  # a 4.9 master does not have this kind
            self._failed(kind.name, error)
        except Exception as error:
            self._failed_unexpectedly(kind.name, error)

    async def _table_from_java(self, kind: Kind, connection: Connection, table: PersistedTable) -> tuple[Any, int]:
        """(the whole table in the form of its file, bytes received)."""
        pages, size = TablePages(kind), 0
        while True:
            answer = await connection.request(kind.request_code, pages.fields(), timeout_ms=_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise MasterRefused(kind.name, answer.code, answer.remark)
            size += len(answer.body or b"")
            # 100,000 rows of Java's bare keys take a second.
            page = await asyncio.to_thread(decode_answer, kind, table, answer.body)
            if pages.take(page, answer.fields):
                return pages.table, size

    async def _extra(self, extra: ExtraKind, master: str) -> None:
        try:
            address = below(master, VIP_PORT_BELOW) if extra.on_vip_port else master
            answer = await self._pool.request(address, extra.code, timeout_ms=_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                self.status.kind(extra.name).succeeded(
                    self._clock_ms(), None, changed=extra.adopt(answer.body or b""), received=len(answer.body or b"")
                )
        except (*_SyncErrors, ValueError) as error:
            self._failed(extra.name, error)
        except Exception as error:
            self._failed_unexpectedly(extra.name, error)

    async def _fetch(self, kind: FetchedKind, master: str) -> None:
        try:
            changed, size = await kind.fetch(self._pool, master)
            self.status.kind(kind.name).succeeded(self._clock_ms(), None, changed=changed, received=size)
            if changed:
                log.info("metadata changed", kind=kind.name, master=master)
        except (*_SyncErrors, ReplicationError) as error:
            self._failed(kind.name, error)
        except Exception as error:
            self._failed_unexpectedly(kind.name, error)

    async def _succeeded(self, kind: str, changed: bool, size: int) -> None:
        table = table_of(self._tables, kind)
        if changed:
            self._changed.add(kind)
            await table.saved()
            self._on_changed(kind)
        self._finished.add(kind)
        self.status.kind(kind).succeeded(self._clock_ms(), table.version, changed=changed, received=size)

    def _failed_unexpectedly(self, kind: str, error: Exception) -> None:
        """Count the failure and keep it: it is raised at the end of the round, and logged with its traceback."""
        self._finished.add(kind)
        self.status.kind(kind).failed(self._clock_ms(), error_text(error))
        self._unexpected = self._unexpected or error

    def _failed(self, kind: str, error: Exception) -> None:
        """Count the failure; log it when it is not the same as the last one."""
        status = self.status.kind(kind)
        if str(error) != status.error:
            log.warning("metadata was not synchronised", kind=kind, master=self._master, error=str(error))
        self._finished.add(kind)
        status.failed(self._clock_ms(), error)


def _version_text(version: DataVersion) -> str:
    return f"{version.state_version}:{version.timestamp}:{version.counter}"
