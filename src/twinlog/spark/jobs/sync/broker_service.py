"""One tick: what a task does for its brokers, all of them at the same time.

    lock and open the replica -> metadata, as a replica asks -> introduce, compare, decide -> copy the log -> report

Metadata comes first: offsets that are older than the log repeat a message at worst, younger ones would skip some.
What one broker's tick meets is told in its report, and no other broker hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from twinlog.base.addresses import address_text, parse_address
from twinlog.base.clock import wall_clock_ms
from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.client.admin.servers import read_lines
from twinlog.client.options import tls_context
from twinlog.client.signing import sign
from twinlog.metadata.errors import MetadataError
from twinlog.metadata.persisted import PersistedTable
from twinlog.net.connecting import target_of
from twinlog.net.errors import NetError
from twinlog.net.pool import ConnectionPool
from twinlog.replication.errors import JoinRefused, ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.replica.handshake import Handshake, MasterFacts
from twinlog.replication.replica.join import Begin, LogRange, Refuse, decide_join
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.replication.segment_bytes import common_segment_bytes, shown_segment_bytes
from twinlog.settings.replication import ReplicationSettings
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.sync.log_copy import CopyLimits, copy_log
from twinlog.spark.jobs.sync.metadata_changes import image_of
from twinlog.spark.jobs.sync.replica import Replica, SparseFiles
from twinlog.spark.jobs.sync.replica_state import JournalEntry, MasterConf, RangeDigest
from twinlog.spark.jobs.sync.sources import HaSource, StoreSource
from twinlog.spark.jobs.sync.sync_plan import COPIES_AT_ONCE, BrokerTarget, check_folder, copy_share_ms
from twinlog.store.errors import StoreError
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.twinlog_codes import TwinlogCode

_BROKERS_AT_ONCE = 32
_TIMEOUT_MS = 3000
_SETTINGS = ReplicationSettings()
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
OpenSource = Callable[[], HaSource | StoreSource]
BrokerErrors = (OSError, NetError, ReplicationError, StoreError, MetadataError, WireError, SparkSourceError)


@dataclass(frozen=True, slots=True)
class Drained:
    """What of a replica is in the tables already: numbers of its journal and of its ranges."""

    entries: int = 0
    ranges: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TickWork:
    """What the tasks of one tick are told."""

    to: str
    cluster: ClusterOptions = field(repr=False)
    groups: Sequence[Sequence[BrokerTarget]]
    drained: Mapping[tuple[str, str], Drained] = field(default_factory=dict)  # by broker and replica
    box_ms: int = 8_000
    range_bytes_max: int = 256 * 1024 * 1024
    lock_wait_s: float = 0.0
    modes: Modes = PRIVATE


class BrokerReport(msgspec.Struct):
    """What became of one broker in one tick; `entries` and `ranges` are those that are not in the tables yet."""

    broker: str
    address: str = ""
    replica: str = ""
    begin: int = 0
    end: int = 0
    master_end: int = 0
    changes: int = 0
    entries: list[JournalEntry] = []
    ranges: list[RangeDigest] = []
    error: str = ""
    seconds: float = 0.0

    @property
    def lag(self) -> int:
        return max(0, self.master_end - self.end)


def run_group(work: TickWork, number: int) -> list[BrokerReport]:
    """Everything that one task does."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Group(work).run(work.groups[number]))


class _Group:
    """The brokers of one task, on one event loop."""

    def __init__(self, work: TickWork) -> None:
        self._work = work
        self._slots = asyncio.Semaphore(_BROKERS_AT_ONCE)
        self._copies = asyncio.Semaphore(COPIES_AT_ONCE)
        self._copying = 0

    async def run(self, targets: Sequence[BrokerTarget]) -> list[BrokerReport]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(COPIES_AT_ONCE + 8, thread_name_prefix="sync"))
        options = self._work.cluster
        pool = ConnectionPool(
            tls=_tls(options) if options.tls else None,
            connect_timeout_ms=options.connect_timeout_ms,
            before_request=_signer(options),
        )
        try:
            return list(await asyncio.gather(*(self._tick(pool, target) for target in targets)))
        finally:
            await pool.close()

    async def _tick(self, pool: ConnectionPool, target: BrokerTarget) -> BrokerReport:
        report = BrokerReport(target.name, target.address)
        async with self._slots:
            began = time.monotonic()
            try:
                root = Path(self._work.to) / check_folder(target.name)
                ops = SparseFiles(self._work.modes)
                replica = await asyncio.to_thread(Replica.open, root, lock_wait_s=self._work.lock_wait_s, ops=ops)
                with contextlib.closing(replica):
                    try:
                        await _BrokerTick(self, pool, target, replica, report).run()
                    finally:
                        self._describe(replica, report)
            except BrokerErrors as error:
                told = _told(error, Path(self._work.to) / target.name)
                report.error = "; ".join(filter(None, (report.error, told)))
            report.seconds = time.monotonic() - began
        return report

    def _describe(self, replica: Replica, report: BrokerReport) -> None:
        """What the replica holds now, and what of it the driver has not seen."""
        drained = self.drained(replica, report.broker)
        report.replica, report.end = replica.state.replica, replica.state.end
        report.entries = replica.entries(drained.entries)
        report.ranges = [one for one in replica.state.ranges if one.sequence > drained.ranges]

    def drained(self, replica: Replica, broker: str) -> Drained:
        return self._work.drained.get((broker, replica.state.replica), Drained())

    async def copy(self, replica: Replica, opened: OpenSource, goal: int, first: bytes, begin: int) -> None:
        """Copy in a thread, when it is this broker's turn, for its share of the tick; only then a link is opened."""

        def copy(limits: CopyLimits) -> None:
            with opened() as source:
                try:
                    copy_log(replica, source, limits, first=first, begin=begin)
                except OSError as error:
                    if error.errno in _DISK_ERRORS:
                        with contextlib.suppress(OSError, StoreError):  # the first error is the one to tell
                            replica.drop_unnoted()
                    raise

        self._copying += 1
        try:
            async with self._copies:
                share_s = copy_share_ms(self._work.box_ms, self._copying) / 1000
                await asyncio.to_thread(copy, CopyLimits(goal, time.monotonic() + share_s, self._work.range_bytes_max))
        finally:
            self._copying -= 1

    @property
    def work(self) -> TickWork:
        return self._work


class _BrokerTick:
    """One broker's tick, from its open replica on."""

    def __init__(
        self, group: _Group, pool: ConnectionPool, target: BrokerTarget, replica: Replica, report: BrokerReport
    ) -> None:
        self._group = group
        self._pool = pool
        self._target = target
        self._replica = replica
        self._report = report

    async def run(self) -> None:
        replica, state = self._replica, self._replica.state
        self._report.begin = state.end
        replica.forget_ranges(self._group.drained(replica, self._target.name).ranges)
        try:
            conf = await self._conf()
            await self._sync_metadata()
            await self._sync_log(conf)
        except BrokerErrors:
            if state.master is not None:  # its port or its name may be another by now
                state.master = None
                with contextlib.suppress(OSError):  # the first error is the one to tell
                    await asyncio.to_thread(replica.save_state)
            raise

    async def _conf(self) -> MasterConf:
        """Who the master is and where its HA port is, from its own configuration."""
        state, address = self._replica.state, self._target.address
        if state.master is not None and state.master.address == address:
            return state.master
        answer = await self._pool.request(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(f"{address} does not tell its configuration: code {answer.code}, {answer.remark}")
        conf = read_master_conf(address, read_lines(answer.body))
        if conf.broker != self._target.name:
            raise JoinRefused(f"{address} is {conf.broker}, not {self._target.name}: look for it at the name server")
        state.master = conf
        await asyncio.to_thread(self._replica.save_state)
        return conf

    # -- metadata ----------------------------------------------------------------------------------

    async def _sync_metadata(self) -> None:
        replica, address = self._replica, self._target.address
        held = replica.holds()
        if held and await self._is_unchanged(held):
            return
        now_ms = wall_clock_ms()
        tables = await asyncio.to_thread(replica.tables, now_ms)
        for table in tables:
            table.saver = _later
        before = image_of(tables)
        service = MetadataSyncService(lambda: _SETTINGS, tables, self._pool, own_address="", clock_ms=wall_clock_ms)
        service.master_is_at(address)
        service.resume_from(held)
        await service.sync()
        revisions = whole_revisions(service.held())
        changes = await asyncio.to_thread(replica.adopt, before, tables, revisions, now_ms)
        self._report.changes = len(changes)
        errors = {kind: status.error for kind, status in service.status.kinds.items() if status.error}
        self._report.error = "; ".join(dict.fromkeys(errors.values()))

    async def _is_unchanged(self, held: dict[str, str]) -> bool:
        """Whether a Twinlog master says that nothing changed; then no table needs to be looked at."""
        answer = await self._pool.request(
            self._target.address, TwinlogCode.METADATA_CHANGES, held, timeout_ms=_TIMEOUT_MS
        )
        return answer.code == ResponseCode.SUCCESS and not answer.body

    # -- the log -----------------------------------------------------------------------------------

    async def _sync_log(self, conf: MasterConf) -> None:
        replica, state, report = self._replica, self._replica.state, self._report
        handshake = Handshake(self._pool, self._target.address, replica)
        facts = await handshake.introduce(
            HelloHeader(
                cluster_name=conf.cluster,
                broker_name=conf.broker,
                broker_id=0,
                instance=state.replica,
                log_start=replica.log_start,
                log_end=replica.log_end,
                segment_bytes=conf.segment_bytes,
                observer=True,
                whole_history=True,
            )
        )
        master = LogRange(max(facts.log.start, 0), max(facts.log.end, 0))  # Java: -1 in an empty log
        report.master_end = master.end
        life = state.held.get("topics", "").partition(":")[0]
        if replica.log_end != master.end or state.end != replica.log_end or not life or life != state.verified:
            facts = await handshake.compare(facts)
        shown = facts.segment_bytes or conf.segment_bytes
        segment_bytes = common_segment_bytes(replica.segment_bytes, shown)
        plan = decide_join(
            replica.log,
            master,
            segment_bytes=segment_bytes,
            master_segment_bytes=shown,
            differs_at=facts.differs_at,
            whole_history=True,
        )
        if isinstance(plan, Refuse):
            raise JoinRefused(self._advice(plan, master))
        if not master.is_empty and not (replica.log_end == master.end == state.end):
            begin = await asyncio.to_thread(self._begin, plan, master, segment_bytes)
            if replica.log.is_empty:
                report.begin = begin  # what the master deleted before is not copied
            if begin < master.end:
                await self._copy(handshake, facts, conf, begin, master)
        if life and state.verified != life:
            state.verified = life
            await asyncio.to_thread(replica.save_state)

    def _begin(self, plan: object, master: LogRange, segment_bytes: int) -> int:
        """Get the replica ready; where copying goes on."""
        wanted = self._replica.begin_copy(master, segment_bytes, self._group.work.range_bytes_max, wall_clock_ms())
        return plan.at if isinstance(plan, Begin) else wanted

    async def _copy(
        self, handshake: Handshake, facts: MasterFacts, conf: MasterConf, begin: int, master: LogRange
    ) -> None:
        replica, store, first, asked = self._replica, self._target.store, b"", begin
        if store is not None and StoreSource.is_reachable(store):
            await self._group.copy(replica, partial(StoreSource, store, begin, master.end), master.end, b"", begin)
            return
        if replica.log.is_empty:
            asked = 0
            if not facts.is_twinlog:
                # Java: a replica at 0 gets the newest segment only, so the first record is fetched by its offset.
                first = await handshake.record(begin) or b""
                asked = begin + len(first)
                if not first:
                    raise ReplicationError(f"{self._target.address} does not give the first record of its log, {begin}")
        opened = partial(HaSource, conf.ha_address, asked, facts.pass_number)
        await self._group.copy(replica, opened, master.end, first, begin)

    def _advice(self, plan: Refuse, master: LogRange) -> str:
        replica = self._replica
        if replica.log_end < master.start:
            return (
                f"the master has deleted the bytes {replica.log_end} to {master.start} that this replica needs next; "
                f"move {replica.root} away to begin anew"
            )
        return plan.reason


def whole_revisions(held: Mapping[str, str]) -> dict[str, str]:
    """The revisions that tables are at; not those of a table that has arrived in part."""
    return {kind: text for kind, text in held.items() if not text.startswith(":") and not text.endswith(":whole")}


def read_master_conf(address: str, lines: Mapping[str, str]) -> MasterConf:
    """What a replica needs to know of a broker's configuration."""
    target = target_of(address)
    ha_port = lines.get("haListenPort", "0")
    ha_host = lines.get("brokerIP2") or target.host
    try:
        number = int(ha_port) or target.port + 1
        cluster, broker = lines["brokerClusterName"], lines["brokerName"]
        ha_address = parse_address(address_text(ha_host, number))
    except (KeyError, ValueError) as error:
        raise ReplicationError(f"{address} tells its configuration without what a replica needs: {error}") from error
    return MasterConf(address, cluster, broker, str(ha_address), shown_segment_bytes(lines))


def _told(error: Exception, root: Path) -> str:
    """What an error says; one of the replica's disk says also where, and what to do."""
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        place = error.filename or root
        return f"{place} cannot be written ({error.strerror}): free space or allow writing; the next tick goes on there"
    return str(error) or type(error).__name__


async def _later(table: PersistedTable) -> None:
    """Tables are saved together, behind the journal."""


def _signer(options: ClusterOptions):
    credentials = options.credentials
    return None if credentials is None else lambda command: sign(command, credentials)


def _tls(options: ClusterOptions):
    return tls_context(
        ca_file=options.tls_ca_file,
        cert_file=options.tls_cert_file,
        key_file=options.tls_key_file,
        verify=options.tls_verify,
    )
