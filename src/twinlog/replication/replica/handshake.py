"""What a replica asks its master on the remoting port before it follows it.

The replica introduces itself to a Twinlog master and compares checksums with it. It asks a Java master for the bounds
of its log (runtime information) and for the record that should be the replica's last one.

A disk may have damaged the record at which both logs differ. That is not another history, and nothing must be cut for
it: the record is repaired from the side that has it, and the logs are compared again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from twinlog.net.pool import ConnectionPool
from twinlog.replication.digests import ByteRange, bytes_digest, range_digest, tail_search
from twinlog.replication.errors import JoinRefused, ReplicationError
from twinlog.replication.hello import HelloAnswer, HelloHeader
from twinlog.replication.replica.join import LogRange
from twinlog.replication.segment_bytes import shown_segment_bytes
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import parse_properties
from twinlog.store.log.checked_log import is_whole
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.recovery.quarantine import is_filler
from twinlog.store.scan.log_parts import part_at
from twinlog.wire.bodies import KVTable, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.message import decode_message
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC, is_blank
from twinlog.wire.twinlog_codes import TwinlogCode

_TIMEOUT_MS = 3000
_DIGEST_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """What the replica knows of its master."""

    log: LogRange
    pass_number: int | None = None  # a Twinlog master's
    segment_bytes: int | None = None
    differs_at: int | None = None  # the first offset at which both logs are known to differ
    awaits_replicas: bool = False
    master_epoch: int = 0  # a Java master has none

    @property
    def is_twinlog(self) -> bool:
        return self.pass_number is not None


class OwnLog(Protocol):
    """What is compared with the master's log: a replica's store, or a directory that `pipeline sync` writes."""

    @property
    def log_start(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    @property
    def last_record_offset(self) -> int | None: ...
    @property
    def commit_log(self) -> CommitLog: ...
    def record_at(self, physical_offset: int) -> memoryview | None: ...


class Handshake:
    """Requests to one master."""

    def __init__(
        self,
        pool: ConnectionPool,
        address: str,
        store: OwnLog,
        on_damage: Callable[[int], bool] = lambda physical_offset: False,
    ) -> None:
        """`on_damage` is called for a damaged record of this log; it returns whether to wait for its repair."""
        self._pool = pool
        self._address = address
        self._store = store
        self._on_damage = on_damage

    async def facts(self, hello: HelloHeader) -> MasterFacts:
        """Introduce this replica and compare logs. JoinRefused when the master refuses it."""
        return await self.compare(await self.introduce(hello))

    async def introduce(self, hello: HelloHeader) -> MasterFacts:
        """Ask for the bounds of the master's log, and a Twinlog master for a pass; nothing is compared."""
        answer = await self._pool.request(
            self._address, TwinlogCode.REPLICA_HELLO, encode_fields(hello), timeout_ms=_TIMEOUT_MS
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return await self._java_facts()
        if answer.code != ResponseCode.SUCCESS:
            raise JoinRefused(f"{self._address} refuses this replica: {answer.remark}")
        theirs = decode_fields(HelloAnswer, answer.fields)
        if theirs.pass_number is None or theirs.log_start is None or theirs.log_end is None:
            raise ReplicationError(f"{self._address} answered without a pass or the bounds of its log: {answer.fields}")
        log = LogRange(theirs.log_start, theirs.log_end)
        return MasterFacts(
            log,
            theirs.pass_number,
            theirs.segment_bytes,
            awaits_replicas=theirs.awaits_replicas,
            master_epoch=theirs.master_epoch or 0,
        )

    async def compare(self, facts: MasterFacts) -> MasterFacts:
        """The facts with `differs_at`."""
        difference = self._first_difference if facts.is_twinlog else self._java_difference
        return replace(facts, differs_at=await difference(facts.log))

    async def record(self, physical_offset: int) -> bytes | None:
        """The master's record at this offset, or None when it has none there."""
        answer = await self._pool.request(
            self._address,
            RequestCode.VIEW_MESSAGE_BY_ID,
            {"offset": str(physical_offset)},
            timeout_ms=_TIMEOUT_MS,
        )
        return answer.body if answer.code == ResponseCode.SUCCESS else None

    async def _java_facts(self) -> MasterFacts:
        answer = await self._pool.request(self._address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(f"{self._address} does not return the bounds of its log: {answer.remark}")
        try:
            table = decode_body(KVTable, answer.body).table
            ends = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (WireError, KeyError, ValueError) as error:
            raise ReplicationError(f"{self._address} returns invalid bounds of its log: {error}") from error
        log = LogRange(*(max(0, end) for end in ends))  # Java: an empty log begins at -1
        return MasterFacts(log, segment_bytes=await self._java_segment_bytes())

    async def _java_segment_bytes(self) -> int | None:
        """The size of a Java master's files, from its configuration; None when it does not show it."""
        answer = await self._pool.request(self._address, RequestCode.GET_BROKER_CONFIG, timeout_ms=_TIMEOUT_MS)
        try:
            entries = parse_properties((answer.body or b"").decode(), source=self._address)
        except (SettingsError, ValueError):
            return None
        return shown_segment_bytes({entry.key: entry.value for entry in entries})

    async def _java_difference(self, master: LogRange) -> int | None:
        """Compare the replica's last whole record with the master's: Java answers no request for checksums."""
        last = self._store.last_record_offset
        if last is None or not master.start <= last < master.end:
            return None
        ours = self._store.record_at(last)
        theirs = await self.record(last)
        return None if ours is not None and theirs == bytes(ours) else last

    async def _first_difference(self, master: LogRange) -> int | None:
        begin = max(master.start, self._store.log_start)
        search = tail_search(begin, min(master.end, self._store.log_end))
        try:
            wanted = next(search)
            while True:
                wanted = search.send(await self._digests_equal(wanted))
        except StopIteration as found:
            differs_at: int | None = found.value
        if differs_at is None:
            return None
        # A log is cut before a record, so operators are shown where the record begins.
        place = await asyncio.to_thread(part_at, self._store.commit_log, differs_at)
        if place is None:
            return differs_at
        await self._check_damage(place.begin)
        return place.begin

    async def _check_damage(self, begin: int) -> None:
        """ReplicationError when the logs differ at this record because one side's is damaged."""
        head = self._store.commit_log.slice(begin, BLANK_BYTES)
        if head is None or is_blank(head):
            return
        answer = await self._pool.request(
            self._address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(begin)}, timeout_ms=_TIMEOUT_MS
        )
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR) or await self._is_blank_there(begin):
            return
        ours = self._store.record_at(begin)
        if ours is None or not is_whole(ours):
            if self._on_damage(begin):
                raise ReplicationError(f"this replica's record at {begin} is damaged; it is fetched from the master")
        elif not is_whole(memoryview(answer.body or b"")):
            raise ReplicationError(
                f"the record of {self._address} at {begin} is damaged, and this replica's is not. The master fetches "
                "it from here; until then the logs cannot be compared"
            )
        elif is_filler(decode_message(answer.body or b"")):
            raise ReplicationError(
                f"{self._address} has lost its record at {begin} to damage on its disk, and this replica has it, so "
                "nothing is cut here. Stop that broker and run `twinlog store repair` there with --from this replica, "
                "or make this replica master"
            )

    async def _is_blank_there(self, begin: int) -> bool:
        """Whether the master's segment ends where a record of this replica begins."""
        rest = self._store.commit_log.segment_size - begin % self._store.commit_log.segment_size
        blank = SIZE_AND_MAGIC.pack(rest, MAGIC_BLANK)
        wanted = ByteRange(begin, begin + len(blank))
        return await self._master_digest(wanted) == bytes_digest(blank)

    async def _digests_equal(self, wanted: ByteRange) -> bool:
        ours = await asyncio.to_thread(range_digest, self._store.commit_log, wanted)
        theirs = await self._master_digest(wanted)
        if ours is None or theirs is None:  # not a difference: with failover, this log would be cut there
            who = "this replica" if ours is None else self._address
            raise ReplicationError(f"{who} does not hold the bytes {wanted} any more; they are compared again")
        return theirs == ours

    async def _master_digest(self, wanted: ByteRange) -> str | None:
        answer = await self._pool.request(
            self._address, TwinlogCode.LOG_DIGESTS, {"ranges": str(wanted)}, timeout_ms=_DIGEST_TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(f"{self._address} returns no checksum of {wanted}: {answer.remark}")
        match loads(answer.body or b"[]"):
            case [None]:
                return None
            case [str(digest)]:
                return digest
            case _:
                raise ReplicationError(f"{self._address} returns an invalid checksum of {wanted}: {answer.body!r:.100}")
