"""A name server and a broker in a few lines, in memory, for tests of the client.

It answers what the client asks, records every request in `seen`, and lets a test put answers of its
own in front with `script(code, answer)`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Self

from twinlog.net.connection import Connection, Request
from twinlog.net.server import Server
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import (
    BrokerData,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    MessageQueue,
    QueueData,
    TopicRouteData,
    decode_body,
    encode_body,
)
from twinlog.wire.codes import RequestCode as R
from twinlog.wire.codes import ResponseCode as C
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import PullHeader, PullResponseHeader, SendBackHeader, SendHeaderV2, SendResponseHeader
from twinlog.wire.java_json.fastjson import dumps
from twinlog.wire.message import Message, encode_message
from twinlog.wire.properties import decode_properties


class FakeBroker:
    """Keeps messages in lists; a pull that finds nothing is held until a send wakes it."""

    def __init__(self, name: str, cluster: FakeCluster) -> None:
        self.name, self._cluster = name, cluster
        self.queues: dict[MessageQueue, list[Message]] = defaultdict(list)
        self.offsets: dict[tuple[str, MessageQueue], int] = {}
        self.members: dict[str, dict[Connection, str]] = defaultdict(dict)
        self.locks: dict[MessageQueue, str] = {}
        self.heartbeats: list[HeartbeatData] = []
        self.seen: list[Request] = []
        self.sent_back: list[SendBackHeader] = []
        self.suggested = 0  # the broker id that pulls are sent to
        self.scripted: dict[int, list] = defaultdict(list)
        self._held: list[tuple[MessageQueue, Request]] = []
        self._physical = itertools.count(0, 1000)
        codes = [
            *(R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE, R.PULL_MESSAGE, R.HEART_BEAT, R.UNREGISTER_CLIENT),
            *(R.QUERY_CONSUMER_OFFSET, R.UPDATE_CONSUMER_OFFSET, R.GET_MAX_OFFSET, R.GET_MIN_OFFSET),
            *(R.GET_CONSUMER_LIST_BY_GROUP, R.LOCK_BATCH_MQ, R.UNLOCK_BATCH_MQ, R.CONSUMER_SEND_MSG_BACK),
            *(R.END_TRANSACTION, R.CHECK_CLIENT_CONFIG, R.SEARCH_OFFSET_BY_TIMESTAMP),
        ]
        self.server = Server(dict.fromkeys(codes, self._handle), on_close=self._left)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def script(self, code: int, *answers: object) -> None:
        """Answer the next requests with these codes, or with what these functions return."""
        self.scripted[code] += answers

    def requests(self, code: int) -> list[Request]:
        return [request for request in self.seen if request.code == code]

    def _handle(self, request: Request) -> Command | None:
        self.seen.append(request)
        if self.scripted[request.code]:
            answer = self.scripted[request.code].pop(0)
            return answer(request) if callable(answer) else request.reply(answer, "scripted")
        return getattr(self, f"_{R(request.code).name.lower()}")(request)

    def _send_message_v2(self, request: Request) -> Command:
        header = decode_fields(SendHeaderV2, request.fields)
        queue = MessageQueue(header.topic or "", self.name, header.queue_id or 0)
        self._cluster.create(queue.topic, header.default_topic_queue_nums or 0)
        if header.batch:
            parts = [(e.body, decode_properties(e.properties)) for e in decode_batch(request.body or b"")]
        else:
            parts = [(request.body or b"", decode_properties(header.properties or ""))]
        stored = [self.put(queue, body, properties, header.sys_flag or 0) for body, properties in parts]
        answer = SendResponseHeader(
            msg_id=",".join(m.offset_message_id for m in stored),
            queue_id=queue.queue_id,
            queue_offset=stored[0].queue_offset,
            transaction_id=stored[0].message_id,
        )
        return request.reply(fields=encode_fields(answer))

    _send_batch_message = _send_message_v2

    def put(
        self, queue: MessageQueue, body: bytes, properties: dict[str, str] | None = None, flags: int = 0
    ) -> Message:
        self._cluster.create(queue.topic)
        messages = self.queues[queue]
        message = Message(
            topic=queue.topic,
            body=body,
            queue_id=queue.queue_id,
            queue_offset=len(messages),
            physical_offset=next(self._physical),
            sys_flag=flags,
            properties=properties or {},
            store_timestamp=1_000 + len(messages),
            store_host=("127.0.0.1", self.server.port),
        )
        messages.append(message)
        held, self._held = self._held, []
        for place, request in held:
            if place == queue:
                request.connection.send(self._pull_answer(request, queue))
            else:
                self._held.append((place, request))
        return message

    def _pull_message(self, request: Request) -> Command | None:
        header = decode_fields(PullHeader, request.fields)
        queue = MessageQueue(header.topic or "", self.name, header.queue_id or 0)
        if header.queue_offset == len(self.queues[queue]) and (header.sys_flag or 0) & 2:
            self._held.append((queue, request))
            return None
        return self._pull_answer(request, queue)

    def _pull_answer(self, request: Request, queue: MessageQueue) -> Command:
        header = decode_fields(PullHeader, request.fields)
        at, messages = header.queue_offset or 0, self.queues[queue]
        end = len(messages)
        found = messages[at : at + (header.max_msg_nums or 32)]
        code = C.SUCCESS if found else C.PULL_NOT_FOUND if at == end else C.PULL_OFFSET_MOVED
        answer = PullResponseHeader(
            suggest_which_broker_id=self.suggested,
            next_begin_offset=min(at + len(found), end),
            min_offset=0,
            max_offset=end,
        )
        return request.reply(code, fields=encode_fields(answer), body=b"".join(map(encode_message, found)))

    def _heart_beat(self, request: Request) -> Command:
        data = decode_body(HeartbeatData, request.body)
        self.heartbeats.append(data)
        for consumer in data.consumer_data_set:
            members = self.members[consumer.group_name]
            if request.connection not in members:
                members[request.connection] = data.client_id
                self.tell_members(consumer.group_name)
        return request.reply(fields={})

    def tell_members(self, group: str) -> None:
        for connection in self.members[group]:
            connection.oneway(R.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def _unregister_client(self, request: Request) -> Command:
        self._left(request.connection)
        return request.reply(fields={})

    def _left(self, connection: Connection) -> None:
        for group, members in self.members.items():
            if members.pop(connection, None):
                self.tell_members(group)

    def _get_consumer_list_by_group(self, request: Request) -> Command:
        members = list(self.members[(request.fields or {})["consumerGroup"]].values())
        return request.reply(body=dumps({"consumerIdList": members}))

    def _query_consumer_offset(self, request: Request) -> Command:
        offset = self.offsets.get(self._group_queue(request))
        if offset is None:
            return request.reply(C.QUERY_NOT_FOUND, "Not found")
        return request.reply(fields={"offset": str(offset)})

    def _update_consumer_offset(self, request: Request) -> Command:
        self.offsets[self._group_queue(request)] = int((request.fields or {})["commitOffset"])
        return request.reply(fields={})

    def _get_max_offset(self, request: Request) -> Command:
        return request.reply(fields={"offset": str(len(self.queues[self._group_queue(request)[1]]))})

    def _get_min_offset(self, request: Request) -> Command:
        return request.reply(fields={"offset": "0"})

    def _search_offset_by_timestamp(self, request: Request) -> Command:
        messages = self.queues[self._group_queue(request)[1]]
        wanted = int((request.fields or {})["timestamp"])
        return request.reply(fields={"offset": str(sum(m.store_timestamp < wanted for m in messages))})

    def _lock_batch_mq(self, request: Request) -> Command:
        body = decode_body(LockBatchRequest, request.body)
        ours = [queue for queue in body.mq_set if self.locks.setdefault(queue, body.client_id) == body.client_id]
        return request.reply(body=encode_body(LockBatchResponse(lock_ok_mq_set=ours)))

    def _unlock_batch_mq(self, request: Request) -> Command:
        body = decode_body(LockBatchRequest, request.body)
        for queue in body.mq_set:
            if self.locks.get(queue) == body.client_id:
                del self.locks[queue]
        return request.reply()

    def _consumer_send_msg_back(self, request: Request) -> Command:
        self.sent_back.append(decode_fields(SendBackHeader, request.fields))
        return request.reply()

    def _end_transaction(self, request: Request) -> Command:
        return request.reply()

    def _check_client_config(self, request: Request) -> Command:
        return request.reply()

    def _group_queue(self, request: Request) -> tuple[str, MessageQueue]:
        fields = request.fields or {}
        return fields.get("consumerGroup", ""), MessageQueue(fields["topic"], self.name, int(fields["queueId"]))


class FakeCluster:
    """`async with FakeCluster() as cluster:` gives brokers `broker-a`, ... and a name server that knows them.

    With `replica`, `broker-a` has one under id 1; `masters_known=False` takes the masters off the routes.
    """

    def __init__(self, brokers: int = 1, queues: int = 2, *, replica: bool = False) -> None:
        self.brokers = [FakeBroker(f"broker-{chr(97 + i)}", self) for i in range(brokers)]
        self.replica = FakeBroker("broker-a", self) if replica else None
        self.masters_known = True
        self.topics: dict[str, int] = {"TBW102": 8}
        self.default_queues = queues
        self.requests: list[Request] = []
        self.names = Server({R.GET_ROUTEINFO_BY_TOPIC: self._route})

    @property
    def broker(self) -> FakeBroker:
        return self.brokers[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.names.port}"

    def create(self, topic: str, queues: int = 0) -> None:
        self.topics.setdefault(topic, queues or self.default_queues)

    def queue(self, topic: str, queue_id: int = 0, broker: int = 0) -> MessageQueue:
        return MessageQueue(topic, self.brokers[broker].name, queue_id)

    async def __aenter__(self) -> Self:
        for server in self._servers():
            await server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        for server in self._servers():
            await server.stop()

    def _servers(self) -> list[Server]:
        brokers = [*self.brokers, self.replica] if self.replica else self.brokers
        return [self.names, *(broker.server for broker in brokers)]

    def _addresses(self, broker: FakeBroker) -> dict[int, str]:
        addresses = {0: broker.address} if self.masters_known else {}
        if self.replica is not None and self.replica.name == broker.name:
            addresses[1] = self.replica.address
        return addresses

    def _route(self, request: Request) -> Command:
        self.requests.append(request)
        topic = (request.fields or {})["topic"]
        if topic not in self.topics:
            return request.reply(C.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
        count = self.topics[topic]
        perm = 7 if topic == "TBW102" else 6
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=b.name, read_queue_nums=count, write_queue_nums=count, perm=perm)
                for b in self.brokers
            ],
            broker_datas=[
                BrokerData(cluster="C", broker_name=b.name, broker_addrs=self._addresses(b)) for b in self.brokers
            ],
        )
        return request.reply(body=encode_body(route, int_keys="quoted"))


async def until(condition: Callable[[], object], seconds_max: float = 10) -> None:
    """Wait for something that another task brings about."""
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(0.005)
