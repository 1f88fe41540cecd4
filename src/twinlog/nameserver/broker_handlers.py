"""Requests of brokers: registering, leaving, heartbeats, and who shares their name (103, 104, 322, 904, 901)."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.errors import RegistrationRefused
from twinlog.nameserver.holder_check import Holder, HolderCheck
from twinlog.nameserver.kv_config import ORDER_TOPICS
from twinlog.nameserver.registration import Identity, Registration
from twinlog.nameserver.registration_body import InflatesTooFar, RegistrationBody, body_crc32, decode_registration
from twinlog.nameserver.request_checks import INFLATED_KEY, QUEUES_KEY, TOPICS_KEY, checked_address, is_served, required
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    DataVersion,
    KVTable,
    encode_body,
)
from twinlog.wire.codes import UNSET_REMARK, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import BrokerIdentityHeader, RegisterBrokerHeader, RegisterBrokerResponseHeader
from twinlog.wire.java_json.fastjson import loads

log = get_logger(__name__)
RunBeside = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs a function beside the loop
NAMES_SHOWN = 3
_LARGE_BYTES = 1024 * 1024  # of a registration: some 6,000 topics


def handlers(ctx: NameServerContext, run_beside: RunBeside | None) -> dict[int, Handler]:
    brokers = BrokerHandlers(ctx, run_beside)
    return {
        RequestCode.REGISTER_BROKER: brokers.register,
        RequestCode.UNREGISTER_BROKER: brokers.unregister,
        RequestCode.QUERY_DATA_VERSION: brokers.query_data_version,
        RequestCode.BROKER_HEARTBEAT: brokers.heartbeat,
        RequestCode.GET_BROKER_MEMBER_GROUP: brokers.member_group,
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _Topics:
    """The body of a registration, and which of its topics have more queues than clients can use."""

    body: RegistrationBody
    without_route: list[str]
    problem: str  # of the first of them


class _Turn:
    """Which registration of one connection is read, and how many use the lock."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class BrokerHandlers:
    """Keeps brokers in the route table as long as they are heard."""

    def __init__(self, ctx: NameServerContext, run_beside: RunBeside | None) -> None:
        self._ctx = ctx
        self._run_beside = run_beside
        self._holders = HolderCheck(ctx.limits)
        # One large registration of a connection at a time, so that no connection waits behind all those of another.
        self._reading: dict[int, _Turn] = {}

    # -- registering ---------------------------------------------------------------------------

    def register(self, request: Request) -> Command | Awaitable[Command]:
        header = decode_fields(RegisterBrokerHeader, request.fields)
        registration = _without_topics(request, header)
        if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if self._ctx.table.holders(registration):
            return self._register_contested(request, header, registration)
        return self._register(request, header, registration)

    async def _register_contested(
        self, request: Request, header: RegisterBrokerHeader, registration: Registration
    ) -> Command:
        """Java: the larger state version wins, and who sends the same one last. Here, a holder that answers stays."""
        holders = self._ctx.table.holders(registration)
        with self._holders.contest(holders):
            await self._holders.check(request, holders, "registration")
            answer = self._register(request, header, registration)
            return answer if isinstance(answer, Command) else await answer

    def _register(
        self, request: Request, header: RegisterBrokerHeader, registration: Registration
    ) -> Command | Awaitable[Command]:
        if self._ctx.table.holds(
            registration.cluster,
            registration.broker_name,
            registration.address,
            registration.broker_id,
            registration.digest,
        ):
            return self._adopt(request, registration)
        read = partial(_read_topics, request, self._ctx, compressed=header.compressed)
        # A few bytes may inflate to very many topics.
        if self._run_beside is not None and (header.compressed or len(request.body or b"") > _LARGE_BYTES):
            return self._register_later(request, registration, partial(self._run_beside, read))
        return self._adopt(request, self._with_topics(registration, read()))

    async def _register_later(
        self, request: Request, registration: Registration, read: Callable[[], Awaitable[_Topics]]
    ) -> Command:
        key = id(request.connection)
        turn = self._reading.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                registration = self._with_topics(registration, await read())
        finally:
            turn.users -= 1
            if not turn.users:
                del self._reading[key]
        if request.connection.closed:  # with the connection, the broker has left
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection closed before the registration was read")
        return self._adopt(request, registration)

    def _with_topics(self, registration: Registration, topics: _Topics) -> Registration:
        wrapper = topics.body.topic_config_serialize_wrapper
        if topics.without_route:
            self._log_without_route(registration.broker_name, topics.without_route, QUEUES_KEY, topics.problem)
        return dataclasses.replace(
            registration,
            topics=wrapper.topic_config_table,
            without_route=frozenset(topics.without_route),
            version=wrapper.data_version,
            mappings=wrapper.topic_queue_mapping_info_map or {},
            filter_servers=topics.body.filter_server_list,
        )

    def _adopt(self, request: Request, registration: Registration) -> Command:
        ctx, settings, name = self._ctx, self._ctx.settings, registration.broker_name
        if (registration.cluster, registration.address) not in ctx.table.live:
            log.info(
                "a broker registers",
                broker=name,
                id=registration.broker_id,
                address=registration.address,
                cluster=registration.cluster,
            )
        try:
            registered = ctx.table.register(
                registration,
                ctx.clock_ms(),
                complete=settings.registrations_are_complete,
                topics_max=settings.route_topics_max,
            )
        except RegistrationRefused as refusal:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(refusal)) from refusal
        if registered.left_out:
            problem = f"the table has {len(ctx.table.topics)} topics: {TOPICS_KEY} is {settings.route_topics_max}"
            self._log_without_route(name, registered.left_out, TOPICS_KEY, problem)
        if registered.notice is not None and settings.notify_min_broker_id:
            ctx.notify(registered.notice)
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=registered.master_ha_address, master_addr=registered.master_address
        )
        order_topics = ctx.kv.namespace(ORDER_TOPICS) if settings.order_topics_to_brokers else None
        body = encode_body(KVTable(table=order_topics)) if order_topics is not None else None
        return request.reply(fields=encode_fields(answer), body=body)

    def _log_without_route(self, broker: str, topics: Sequence[str], key: str, problem: str) -> None:
        """One line for all of them: a registration may have very many."""
        self._ctx.limits.count(key, len(topics))
        some = ", ".join(topics[:NAMES_SHOWN])
        log.warning("topics get no route", broker=broker, topics=len(topics), some=some, error=problem)

    # -- leaving, and staying ------------------------------------------------------------------

    def unregister(self, request: Request) -> Command | Awaitable[Command]:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        leaving = Identity(
            required(header.cluster_name, "clusterName"),
            required(header.broker_name, "brokerName"),
            required(header.broker_addr, "brokerAddr"),
            required(header.broker_id, "brokerId"),
        )
        holders = self._ctx.table.holders_of(leaving.address, request.connection)
        return self._unregister_contested(request, leaving, holders) if holders else self._unregister(request, leaving)

    async def _unregister_contested(self, request: Request, leaving: Identity, holders: list[Holder]) -> Command:
        with self._holders.contest(holders):
            await self._holders.check(request, holders, "unregistration")
            return self._unregister(request, leaving)

    def _unregister(self, request: Request, leaving: Identity) -> Command:
        remove_brokers(self._ctx, [leaving], "it unregistered")
        return request.reply()

    def query_data_version(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        cluster, address = header.cluster_name or "", header.broker_addr or ""
        asked = _data_version(request.body)
        stored = self._ctx.table.version_of(cluster, address)
        self._ctx.table.touch(cluster, address, self._ctx.clock_ms())
        changed = "true" if stored is None or stored != asked else "false"
        return request.reply(fields={"changed": changed}, body=encode_body(stored) if stored is not None else None)

    def heartbeat(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        self._ctx.table.touch(header.cluster_name or "", header.broker_addr or "", self._ctx.clock_ms())
        return request.reply()

    def member_group(self, request: Request) -> Command | Awaitable[Command]:
        """The brokers of a name. A master asks whether it was replaced, so this waits while its place is contested."""
        header = decode_fields(BrokerIdentityHeader, request.fields)
        contests = self._holders.contests(header.broker_name or "")
        return self._members_later(request, header, contests) if contests else self._members(request, header)

    async def _members_later(
        self, request: Request, header: BrokerIdentityHeader, contests: set[asyncio.Future[None]]
    ) -> Command:
        await asyncio.wait(contests)
        return self._members(request, header)

    def _members(self, request: Request, header: BrokerIdentityHeader) -> Command:
        name, cluster = header.broker_name or "", header.cluster_name or ""
        broker = self._ctx.table.brokers.get(name)
        addresses = broker.broker_addrs if broker is not None else {}
        group = BrokerMemberGroup(cluster=cluster, broker_name=name, broker_addrs=addresses)
        body = encode_body(BrokerMemberGroupBody(broker_member_group=group))
        return request.reply(remark=UNSET_REMARK, body=body)


def remove_brokers(ctx: NameServerContext, leaving: list[Identity], why: str) -> None:
    """Remove brokers from the table, and notify those that remain."""
    for one in leaving:
        log.info("a broker leaves", broker=one.broker_name, id=one.broker_id, address=one.address, why=why)
    for notice in ctx.table.unregister(leaving):
        if ctx.settings.notify_min_broker_id:
            ctx.notify(notice)


# -- reading requests --------------------------------------------------------------------------------


def _without_topics(request: Request, header: RegisterBrokerHeader) -> Registration:
    """What the header of a registration contains; the body has the topics."""
    return Registration(
        broker_name=required(header.broker_name, "brokerName"),
        address=checked_address(required(header.broker_addr, "brokerAddr"), "brokerAddr"),
        cluster=required(header.cluster_name, "clusterName"),
        broker_id=required(header.broker_id, "brokerId"),
        ha_address=checked_address(header.ha_server_addr, "haServerAddr") if header.ha_server_addr else None,
        silence_ms_max=header.heartbeat_timeout_millis,
        acting_master=header.enable_acting_master,
        zone=(request.fields or {}).get("__ZONE_NAME"),
        topics=None,
        connection=request.connection,
        host=request.connection.peer[0],
        digest=hashlib.blake2b(request.body or b"", digest_size=16).digest(),
    )


def _read_topics(request: Request, ctx: NameServerContext, *, compressed: bool) -> _Topics:
    body, queues_max = _decode_registration(request, ctx, compressed), ctx.settings.topic_queues_max
    topics = body.topic_config_serialize_wrapper.topic_config_table
    found = [name for name, topic in topics.items() if not is_served(topic, queues_max)]
    problem = ""
    if found:
        first = topics[found[0]]
        queues = f"{first.read_queue_nums} read and {first.write_queue_nums} write queues"
        problem = f"{queues} are not in 0 to {queues_max}, which is {QUEUES_KEY}"
    return _Topics(body, found, problem)


def _decode_registration(request: Request, ctx: NameServerContext, compressed: bool) -> RegistrationBody:
    most = ctx.settings.registration_bytes_max
    try:
        return decode_registration(request.body, version=request.version, compressed=compressed, inflated_max=most)
    except InflatesTooFar as error:
        advice = "register fewer topics at once, or raise it"
        raise ctx.limits.refuse(ResponseCode.SYSTEM_ERROR, str(error), INFLATED_KEY, most, advice) from error
    except WireError as error:
        remark = f"RemotingCommandException: Failed to decode RegisterBrokerBody, {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error


def _data_version(body: bytes | None) -> DataVersion | None:
    if not body:
        return None
    try:
        return msgspec.convert(loads(body), DataVersion, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is not a DataVersion: {error}") from error
