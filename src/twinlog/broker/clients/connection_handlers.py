"""Who is connected (203, 204, 328), and requests that the broker passes on to a consumer (307, 309, 223)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from twinlog.broker.clients.client_table import Client
from twinlog.net.access import check_topic
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError, RequestRefused, RequestTimeout
from twinlog.security.request_needs import SUB
from twinlog.security.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from twinlog.wire.bodies import (
    ConnectionInfo,
    ConsumerConnection,
    ConsumerStatus,
    MessageQueue,
    ProducerConnection,
    decode_body,
    encode_body,
)
from twinlog.wire.codes import VERSION_RELAY_MIN, RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import ConsumerGroupHeader, GroupHeader, RelayHeader
from twinlog.wire.values.message_id import parse_offset_message_id

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

_SIGNING = (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)
RELAY_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    connections = ConnectionHandlers(ctx)
    return {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: connections.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: connections.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: connections.all_producers,
        RequestCode.GET_CONSUMER_RUNNING_INFO: connections.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: connections.consume_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: connections.consumer_status,
    }


class ConnectionHandlers:
    """Answers about clients; some requests are passed on to the clients themselves."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    # -- who is connected --------------------------------------------------------------------------

    def consumers(self, request: Request) -> Command:
        name = decode_fields(ConsumerGroupHeader, request.fields).consumer_group or ""
        group = self._ctx.clients.consumers.get(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=_shown(group.clients.values()),
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.reply(body=encode_body(body))

    def producers(self, request: Request) -> Command:
        name = (request.fields or {}).get("producerGroup", "")
        clients = self._ctx.clients.producers.get(name)
        if not clients:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.reply(body=encode_body(ProducerConnection(connection_set=_shown(clients.values()))))

    def all_producers(self, request: Request) -> Command:
        data = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language,
                    "lastUpdateTimestamp": client.last_update_ms,
                    "remoteIP": f"/{client.connection.peer_text}",  # Java prints socket addresses so
                    "version": client.version,
                }
                for client in clients.values()
            ]
            for group, clients in self._ctx.clients.producers.items()
        }
        return request.reply(body=encode_body({"data": data}))

    # -- asking a consumer ---------------------------------------------------------------------

    async def running_info(self, request: Request) -> Command:
        header = decode_fields(RelayHeader, request.fields)
        return await self._relay(request, header, dict(request.fields or {}), None)

    async def consume_directly(self, request: Request) -> Command:
        ctx, header = self._ctx, decode_fields(RelayHeader, request.fields)
        fields = {**(request.fields or {}), "brokerName": ctx.settings.broker_name}
        topic = ctx.topics.get(header.topic or "")
        group = ctx.groups.get(header.consumer_group or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            offset = parse_offset_message_id(header.msg_id or "")[2]
        except WireError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        message = ctx.store.message_at(offset) if offset >= 0 else None
        record = ctx.store.record_at(offset) if message is not None else None
        if message is None or record is None:
            remark = f"no message with the id {header.msg_id} in this broker; give the offsetMsgId of one it stores"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        check_topic(ctx.gate, request, message.topic, SUB)
        return await self._relay(request, header, fields, bytes(record))

    async def _relay(
        self, request: Request, header: RelayHeader, fields: dict[str, str], body: bytes | None
    ) -> Command:
        group, client_id = header.consumer_group, header.client_id
        client = self._ctx.clients.find_consumer(group or "", client_id or "")
        if client is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if client.version < VERSION_RELAY_MIN:
            remark = f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark + "please upgrade it to V3_1_8_SNAPSHOT")
        # Not the signature: it covers values without their names, and the client id among them is the client's choice.
        # With another request made of the same values, the client would be who asked. Java passes it on.
        relayed = {name: value for name, value in fields.items() if name not in _SIGNING}
        try:
            answer = await _connection(client).request(request.code, relayed, body, RELAY_TIMEOUT_MS)
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise RequestRefused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except NetError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from None
        return request.reply(answer.code, answer.remark, answer.fields, answer.body)

    async def consumer_status(self, request: Request) -> Command:
        """The queues that the connected consumers of a group hold, and the offset in each."""
        header = decode_fields(GroupHeader, request.fields)
        wanted = (request.fields or {}).get("clientAddr")
        group = self._ctx.clients.consumers.get(header.group or "")
        if group is None:
            remark = f"NullPointerException: no consumer of group {header.group} is online; start one and ask again"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        asked = {"topic": header.topic or "", "group": header.group or ""}
        table: dict[str, dict[MessageQueue, int]] = {}
        for client in list(group.clients.values()):
            if wanted and client.client_id != wanted:
                continue
            held = await _held_queues(client, asked)
            if held is not None:
                table[client.client_id] = held
        return request.reply(body=encode_body(ConsumerStatus(consumer_table=table)))


async def _held_queues(client: Client, asked: dict[str, str]) -> dict[MessageQueue, int] | None:
    """What one consumer answers to GET_CONSUMER_STATUS_FROM_CLIENT; None when it does not."""
    try:
        answer = await _connection(client).request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, asked, timeout_ms=STATUS_TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        # In a thread: Java's JSON dialect is slow to read, and the answer may fill a frame.
        return (await asyncio.to_thread(decode_body, ConsumerStatus, answer.body)).message_queue_table
    except (NetError, WireError):
        return None


def _connection(client: Client) -> Connection:
    return cast(Connection, client.connection)


def _shown(clients: Iterable[Client]) -> list[ConnectionInfo]:
    return [
        ConnectionInfo(
            client_id=client.client_id,
            client_addr=client.connection.peer_text,
            language=client.language,
            version=client.version,
        )
        for client in clients
    ]
