"""Requests about replication: hello, checksums, metadata changes, status, change of role."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.replication.replication_status import ReplicationReport
from twinlog.metadata.offsets import Offsets
from twinlog.net.connection import Connection, Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.replication.account_exchange import HELD, encode_answer
from twinlog.replication.digests import parse_ranges, range_digest
from twinlog.replication.errors import ReplicationError
from twinlog.replication.hello import HelloAnswer, HelloHeader
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.master.peer_rules import peer_refusal
from twinlog.replication.master_epoch import MASTER_EPOCH, OldEpoch
from twinlog.replication.secret import answer_proof, is_proven
from twinlog.security.signatures import ACCESS_KEY
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import HaClientInfo, HaConnectionInfo, HaRuntimeInfo, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.numbers import is_natural
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.replication_service import ReplicationService

log = get_logger(__name__)
_PUSH_DELAY_S = 0.05  # changes within this time cause one notification


def handlers(ctx: BrokerContext, replication: ReplicationService) -> dict[int, Handler]:
    requests = ReplicationHandlers(ctx, replication)
    return {
        RequestCode.GET_BROKER_HA_STATUS: requests.ha_status,
        TwinlogCode.REPLICA_HELLO: requests.hello,
        TwinlogCode.PROVE_SECRET: requests.prove,
        TwinlogCode.LOG_DIGESTS: requests.digests,
        TwinlogCode.METADATA_CHANGES: requests.metadata_changes,
        TwinlogCode.OFFSETS_CARRIED_BACK: requests.offsets_carried_back,
        TwinlogCode.REPLICATION_STATUS: requests.status,
        TwinlogCode.CHANGE_ROLE: requests.change_role,
        TwinlogCode.ACCOUNTS: requests.accounts,
    }


class ReplicationHandlers:
    def __init__(self, ctx: BrokerContext, replication: ReplicationService) -> None:
        self._ctx = ctx
        self._replication = replication
        self._report = ReplicationReport(ctx, replication)
        self._pushes = _Pushes()
        for table in ctx.tables:
            table.on_change.append(self._pushes.soon)

    def hello(self, request: Request) -> Command:
        """A Twinlog replica introduces itself."""
        ctx, store = self._ctx, self._ctx.store
        self._must_be_master("serves no replicas")
        self._must_be_replica(request)
        hello = decode_fields(HelloHeader, request.fields)
        self._check_epoch(hello.master_epoch or 0)
        settings = ctx.settings
        try:
            number = self._replication.master.issue_pass(
                hello, settings.broker_name, settings.cluster_name, request.connection
            )
        except ReplicationError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        answer = HelloAnswer(
            pass_number=number,
            log_start=store.log_start,
            log_end=store.log_end,
            segment_bytes=store.commit_log.segment_size,
            master_epoch=self._replication.epochs.now.own,
            awaits_replicas=self._replication.send_demand.replicas_needed > 0,
        )
        return request.reply(fields=encode_fields(answer))

    def prove(self, request: Request) -> Command:
        """A peer proves that it knows haSharedSecret, and gets the proof that this broker does."""
        secret = self._ctx.conf.replication.shared_secret
        try:
            return request.reply(fields=answer_proof(request.connection, secret, request.fields or {}))
        except ReplicationError as error:
            log.warning("a peer did not prove haSharedSecret", peer=request.connection.peer_text, reason=str(error))
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from error

    async def digests(self, request: Request) -> Command:
        """Checksums of ranges of this broker's log; null for a range that it does not hold."""
        self._must_be_replica(request)
        try:
            ranges = parse_ranges((request.fields or {}).get("ranges"))
        except ValueError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        log = self._ctx.store.commit_log
        work = self._ctx.table_work
        digests = [await work.in_order("digests", range_digest, log, one) for one in ranges]
        return request.reply(body=msgspec.json.encode(digests))

    async def metadata_changes(self, request: Request) -> Command:
        """What changed in the tables since the revisions that the replica holds."""
        self._must_be_replica(request)
        fields = dict(request.fields or {})
        if fields.pop("push", None) == "true":
            self._pushes.add(request.connection)
        if is_natural(seen := fields.pop(MASTER_EPOCH, "")):
            self._check_epoch(int(seen))
        tables, question = self._ctx.tables, tuple(sorted(fields.items()))
        body = await self._ctx.table_work.in_turn("changes", question, lambda: encode_changes(tables, fields))
        return request.reply(fields={MASTER_EPOCH: str(self._replication.epoch)}, body=body)

    def accounts(self, request: Request) -> Command:
        """All accounts, if they are not those that the replica holds; sealed for the account that asks."""
        table, fields = self._ctx.tables.accounts, request.fields or {}
        asking = table.get(fields.get(ACCESS_KEY, ""))
        if self._ctx.gate is None or not table.in_use or asking is None:
            remark = "this master checks no accounts of RocketMQ 5, so its replica cannot take them over"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        held = f"{table.epoch}:{table.edition}"
        body = None if fields.get(HELD) == held else encode_answer(table.rows, asking)
        return request.reply(fields={HELD: held}, body=body)

    def offsets_carried_back(self, request: Request) -> Command:
        """A replica sends the offsets that consumers committed there while this master was away."""
        self._must_be_master("takes no offsets from a replica")
        self._must_be_replica(request)
        try:
            rows = msgspec.json.decode(request.body or b"", type=dict[str, Offsets])
        except (ValueError, RecursionError) as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"invalid offsets: {error}") from error
        known = {key: self._known_queues(key, row) for key, row in rows.items()}
        raised = self._ctx.offsets.raise_to(known, self._ctx.clock_ms())
        return request.reply(fields={"raised": str(raised)})

    def _known_queues(self, key: str, row: dict[int, int]) -> dict[int, int]:
        """The part of a row whose group and queues exist here; the replica keeps the rest and sends it again."""
        topic, _, rest = key.partition("@")
        if rest.partition("@")[0] not in self._ctx.groups:
            return {}
        return {queue_id: offset for queue_id, offset in row.items() if self._ctx.has_queue(topic, queue_id)}

    async def change_role(self, request: Request) -> Command:
        fields = request.fields or {}
        broker_id = fields.get("brokerId", "")
        if broker_id and not is_natural(broker_id):
            remark = f"brokerId={broker_id} is not an id; give a number above 0, or none to take a free one"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        try:
            steps = await self._replication.role_change.change_to(
                fields.get("brokerRole", ""),
                int(broker_id) if broker_id else None,
                force=fields.get("force") == "true",
                successor=fields.get("successor") or None,
            )
        except ReplicationError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return request.reply(body=msgspec.json.encode([step.name for step in steps]))

    def ha_status(self, request: Request) -> Command:
        """GET_BROKER_HA_STATUS, as Java shows it."""
        ctx, replication = self._ctx, self._replication
        info = HaRuntimeInfo(master=ctx.is_master)
        if ctx.is_master:
            end, gap = ctx.store.log_end, ctx.conf.replication.gap_bytes_max
            info.master_commit_log_max_offset = end
            info.in_sync_slave_nums = replication.master.acks.in_sync(end, gap)
            info.ha_connection_info = [
                HaConnectionInfo(
                    addr=view.peer,
                    slave_ack_offset=view.acked,
                    diff=end - view.acked,
                    in_sync=self._report.is_in_sync(view),
                    transferred_byte_in_second=view.bytes_per_second,
                    transfer_from_where=view.next_offset,
                )
                for view in self._report.replicas()
            ]
        else:
            status = replication.replica.status
            info.ha_client_runtime_info = HaClientInfo(
                master_addr=status.master_ha_address,
                transferred_byte_in_second=status.bytes_per_second,
                max_offset=ctx.store.log_end,
                last_read_timestamp=status.last_read_ms,
                last_write_timestamp=status.last_write_ms,
                master_flush_offset=0,
            )
        return request.reply(body=encode_body(info))

    def status(self, request: Request) -> Command:
        """The document behind `twinlog replication status`."""
        return request.reply(body=msgspec.json.encode(self._report.document()))

    def _check_epoch(self, seen: int) -> None:
        """Refuse a replica that knows a newer master than this one, and find out whether it is right."""
        own = self._replication.epochs.now.own
        if self._ctx.is_master and seen > own:
            self._replication.successors.check_soon()
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(OldEpoch(self._ctx.settings.address, own, seen)))

    def _must_be_replica(self, request: Request) -> None:
        """Refuse a stranger: what replicas get is more than what clients may read."""
        connection = request.connection
        has_proof = is_proven(connection) or self._ctx.gate is not None  # the gate lets super accounts pass
        refusal = peer_refusal(self._ctx.conf.replication, connection.peer[0], is_proven=has_proof)
        if refusal is not None:
            log.warning("a peer is not a replica and gets nothing", peer=connection.peer_text, code=request.code)
            raise RequestRefused(ResponseCode.NO_PERMISSION, refusal)

    def _must_be_master(self, what: str) -> None:
        if not self._ctx.is_master:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{self._ctx.settings.address} is a replica itself and {what}; ask the master of "
                f"{self._ctx.settings.broker_name}",
            )


class _Pushes:
    """Notifies replicas that asked for it when metadata changed."""

    def __init__(self) -> None:
        self._connections: set[Connection] = set()
        self._due: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> None:
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close.append(self._connections.discard)

    def soon(self) -> None:
        """Something changed: notify a moment later, once for all changes until then."""
        if self._connections and self._due is None:
            self._due = asyncio.get_running_loop().call_later(_PUSH_DELAY_S, self._notify)

    def _notify(self) -> None:
        self._due = None
        for connection in list(self._connections):
            if not connection.closed:
                connection.oneway(TwinlogCode.METADATA_CHANGED)
