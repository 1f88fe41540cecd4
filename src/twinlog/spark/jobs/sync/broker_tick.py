"""One tick of one broker: metadata first, then the log.

    ask for its configuration -> metadata, as a replica asks for it -> introduce, compare, decide -> copy the log

Metadata comes first: consumer offsets older than the log at worst repeat a message, newer ones would skip some.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from functools import partial

from twinlog.base.addresses import address_text, parse_address
from twinlog.base.clock import wall_clock_ms
from twinlog.client.admin.servers import read_lines
from twinlog.metadata.errors import MetadataError
from twinlog.metadata.persisted import PersistedTable
from twinlog.net.connecting import target_of
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError
from twinlog.net.pool import ConnectionPool
from twinlog.replication.errors import JoinRefused, ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.replica.handshake import Handshake, MasterFacts
from twinlog.replication.replica.join import Begin, LogRange, Refuse, decide_join
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.replication.secret import ha_number, prove
from twinlog.replication.segment_bytes import common_segment_bytes, shown_segment_bytes
from twinlog.settings.replication import ReplicationSettings
from twinlog.spark.cluster_options import tls_of
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.sync.copy_slots import CopySlots
from twinlog.spark.jobs.sync.replicas.metadata_changes import image_of
from twinlog.spark.jobs.sync.replicas.replica import Replica
from twinlog.spark.jobs.sync.replicas.replica_state import MasterConf
from twinlog.spark.jobs.sync.replicas.replica_trim import drop_old_segments
from twinlog.spark.jobs.sync.sources import HaSource, StoreSource
from twinlog.spark.jobs.sync.sync_plan import BrokerTarget
from twinlog.spark.jobs.sync.tick_work import BrokerReport, TickWork
from twinlog.store.errors import StoreError
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.twinlog_codes import TwinlogCode

_TIMEOUT_MS = 3000
BrokerErrors = (OSError, NetError, ReplicationError, StoreError, MetadataError, WireError, SparkSourceError)


class BrokerTick:
    """One broker's tick, with its replica open."""

    def __init__(
        self,
        work: TickWork,
        slots: CopySlots,
        pool: ConnectionPool,
        target: BrokerTarget,
        replica: Replica,
        report: BrokerReport,
    ) -> None:
        self._work = work
        self._slots = slots
        self._pool = pool
        self._target = target
        self._replica = replica
        self._report = report
        self._settings = ReplicationSettings(shared_secret=work.ha_secret)

    async def run(self) -> None:
        replica, state = self._replica, self._replica.state
        self._report.begin = state.end
        replica.forget_ranges(self._work.drained_of(self._target.name, state.replica).ranges)
        try:
            conf = await self._conf()
            await self._sync_metadata()
            await self._sync_log(conf)
            if replica.is_state_unsaved:
                await asyncio.to_thread(replica.save_state)
            if self._work.keep is not None:
                now_ms = wall_clock_ms()
                self._report.dropped = await asyncio.to_thread(drop_old_segments, replica, self._work.keep, now_ms)
        except BrokerErrors:
            if state.master is not None or replica.is_state_unsaved:
                state.master = None  # its port or its name may have changed
                with contextlib.suppress(OSError):  # the first error is the one to report
                    await asyncio.to_thread(replica.save_state)
            raise

    async def _conf(self) -> MasterConf:
        """The master's name and HA port, from its own configuration."""
        state, address = self._replica.state, self._target.address
        if state.master is not None and state.master.address == address:
            return state.master
        answer = await self._pool.request(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(f"{address} does not return its configuration: code {answer.code}, {answer.remark}")
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
        if held and replica.state.versions and await self._is_unchanged(held):
            return
        now_ms = wall_clock_ms()
        tables = await asyncio.to_thread(replica.tables, now_ms)
        for table in tables:
            table.saver = _save_later
        before = image_of(tables)
        service = MetadataSyncService(
            lambda: self._settings, tables, self._pool, own_address="", clock_ms=wall_clock_ms
        )
        service.master_is_at(address)
        service.resume_from(held)
        await service.sync()
        revisions = whole_revisions(service.held())
        changes = await asyncio.to_thread(replica.adopt, before, tables, revisions, now_ms)
        self._report.changes = len(changes)
        errors = {kind: status.error for kind, status in service.status.kinds.items() if status.error}
        self._report.error = "; ".join(dict.fromkeys(errors.values()))

    async def _is_unchanged(self, held: dict[str, str]) -> bool:
        """Whether a Twinlog master reports no change; then no table is read."""
        connection = await self._proven()
        answer = await connection.request(TwinlogCode.METADATA_CHANGES, held, timeout_ms=_TIMEOUT_MS)
        return answer.code == ResponseCode.SUCCESS and not answer.body

    async def _proven(self) -> Connection:
        """The connection to the master, on which both have proven the shared secret, if there is one."""
        connection = await self._pool.get(self._target.address)
        if self._work.ha_secret is not None:
            await prove(connection, self._work.ha_secret)
        return connection

    # -- the log -----------------------------------------------------------------------------------

    async def _sync_log(self, conf: MasterConf) -> None:
        replica, state, report = self._replica, self._replica.state, self._report
        await self._proven()
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
        epoch = state.held.get("topics", "").partition(":")[0]
        if replica.log_end != master.end or state.end != replica.log_end or not epoch or epoch != state.verified:
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
        if epoch and state.verified != epoch:
            state.verified = epoch
            await asyncio.to_thread(replica.save_state)

    def _begin(self, plan: object, master: LogRange, segment_bytes: int) -> int:
        """Prepare the replica; returns where copying continues."""
        wanted = self._replica.begin_copy(master, segment_bytes, self._work.range_bytes_max, wall_clock_ms())
        return plan.at if isinstance(plan, Begin) else wanted

    async def _copy(
        self, handshake: Handshake, facts: MasterFacts, conf: MasterConf, begin: int, master: LogRange
    ) -> None:
        replica, store, first, asked = self._replica, self._target.store, b"", begin
        if store is not None and StoreSource.is_reachable(store):
            await self._slots.copy(replica, partial(StoreSource, store, begin, master.end), master.end, b"", begin)
            return
        if replica.log.is_empty:
            asked = 0
            if not facts.is_twinlog:
                # Java: a replica at 0 gets the newest segment only, so the first record is fetched by its offset.
                first = await handshake.record(begin) or b""
                asked = begin + len(first)
                if not first:
                    raise ReplicationError(
                        f"{self._target.address} does not return the first record of its log, {begin}"
                    )
        number = None if facts.pass_number is None else ha_number(self._work.ha_secret, facts.pass_number)
        opened = partial(HaSource, conf.ha_address, asked, number, self._ha_tls(conf))
        await self._slots.copy(replica, opened, master.end, first, begin)

    def _ha_tls(self, conf: MasterConf) -> ssl.SSLContext | None:
        """TLS where the master's HA port takes it and the job has it; clear text is what Java masters speak."""
        if conf.ha_tls and self._work.cluster.tls:
            return tls_of(self._work.cluster)
        if conf.ha_tls_required:
            raise JoinRefused(
                f"the HA port {conf.ha_address} takes TLS only: give --tls, and --tls-ca with the certificate of its "
                "authority"
            )
        return None

    def _advice(self, plan: Refuse, master: LogRange) -> str:
        replica = self._replica
        if replica.log_end < master.start:
            return (
                f"the master has deleted the bytes {replica.log_end} to {master.start} that this replica needs next; "
                f"move {replica.root} away to start a new replica"
            )
        return plan.reason


def whole_revisions(held: Mapping[str, str]) -> dict[str, str]:
    """The revisions of complete tables; without those of a table that has arrived in part."""
    return {kind: text for kind, text in held.items() if not text.startswith(":") and not text.endswith(":whole")}


def read_master_conf(address: str, lines: Mapping[str, str]) -> MasterConf:
    """What a replica needs from a broker's configuration."""
    target = target_of(address)
    ha_port = lines.get("haListenPort", "0")
    ha_host = lines.get("brokerIP2") or target.host
    try:
        number = int(ha_port) or target.port + 1
        cluster, broker = lines["brokerClusterName"], lines["brokerName"]
        ha_address = parse_address(address_text(ha_host, number))
    except (KeyError, ValueError) as error:
        raise ReplicationError(f"the configuration of {address} lacks what a replica needs: {error}") from error
    required = lines.get("haTlsRequired") == "true"
    queue_file_bytes = lines.get("mappedFileSizeConsumeQueue", "")
    return MasterConf(
        address,
        cluster,
        broker,
        str(ha_address),
        shown_segment_bytes(lines),
        ha_tls=required or lines.get("haTlsEnable") == "true",
        ha_tls_required=required,
        queue_file_bytes=int(queue_file_bytes) if queue_file_bytes.isdigit() else None,
    )


async def _save_later(table: PersistedTable) -> None:
    """Does nothing: all tables are saved together, after the journal."""
