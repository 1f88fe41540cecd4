"""Single messages: by id, by key, by offset."""

from twinlog.base.addresses import address_text
from twinlog.base.clock import wall_clock_ms
from twinlog.client.admin.calls import AdminCalls
from twinlog.client.consuming.pulling import subscription_of, unwrap
from twinlog.client.errors import BadArgument, BrokerRefused
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import BodyError, WireError
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import QueryMessageHeader, ViewMessageHeader
from twinlog.wire.message import Message, decode_messages
from twinlog.wire.values.message_id import parse_offset_message_id

TOOLS_GROUP = "TOOLS_CONSUMER"
LONG_MAX = 2**63 - 1
Located = tuple[MessageQueue, Message]


class AdminMessages(AdminCalls):
    async def message_by_offset_id(self, message_id: str, topic: str | None = None) -> Message:
        """The message with this offset id, which contains the broker's address and the physical offset."""
        try:
            host, port, offset = parse_offset_message_id(message_id)
        except WireError as error:
            raise BadArgument(str(error)) from error
        address = address_text(host, port)
        header = ViewMessageHeader(offset=offset, topic=topic)
        answer = await self.ask_broker(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        found = unwrap(decode_messages(answer.body or b""), self.session.options.decompressed_bytes_max)
        if not found:
            raise BodyError(f"{address} answered for message {message_id} with an empty body")
        return found[0]

    async def message(self, topic: str, message_id: str) -> Message:
        """The message with this id, a unique key or an offset id."""
        found = await self.messages_by_unique_key(topic, message_id)
        return found[-1] if found else await self.message_by_offset_id(message_id, topic)

    async def messages_by_unique_key(
        self, topic: str, unique_key: str, *, begin_ms: int | None = None, end_ms: int = LONG_MAX
    ) -> list[Message]:
        """Messages with the sender's id; usually one, more when a send was repeated."""
        found = await self.located_by_unique_key(topic, unique_key, begin_ms=begin_ms, end_ms=end_ms)
        return [message for _, message in found]

    async def located_by_unique_key(
        self, topic: str, unique_key: str, *, begin_ms: int | None = None, end_ms: int = LONG_MAX
    ) -> list[Located]:
        """The same, each message with its queue."""
        day_ms = 36 * 3600 * 1000
        start = wall_clock_ms() - day_ms if begin_ms is None else begin_ms
        found = await self._query(topic, unique_key, 32, start, end_ms, unique=True)
        return [row for row in found if row[1].message_id == unique_key]

    async def messages_by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = LONG_MAX
    ) -> list[Message]:
        """Messages that have `key` among their keys, oldest first; of each broker its newest `count_max`.

        A broker gives at most its `maxMsgsNumBatch`, which is 64 unless it was set.
        """
        found = await self.located_by_key(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        return [message for _, message in found]

    async def located_by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = LONG_MAX
    ) -> list[Located]:
        """The same, each message with its queue."""
        found = await self._query(topic, key, count_max, begin_ms, end_ms, unique=False)
        return [row for row in found if key in row[1].keys]

    async def message_at(self, queue: MessageQueue, offset: int) -> Message | None:
        """The message at one offset of a queue."""
        result = await self.queue_calls.pull(TOOLS_GROUP, queue, offset, subscription_of(queue.topic, "*"), count_max=1)
        return next((message for message in result.messages if message.queue_offset == offset), None)

    async def _query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[Located]:
        """A message names its queue, and the address of the master that stored it first: its broker is who answers."""
        header = QueryMessageHeader(
            topic=topic, key=key, max_num=count_max, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        fields = encode_fields(header) | {"_UNIQUE_KEY_QUERY": "true" if unique else "false"}
        found: list[Located] = []
        for name, address in (await self.topic_masters(topic)).items():
            try:
                answer = await self.ask_broker(address, RequestCode.QUERY_MESSAGE, fields)
            except BrokerRefused as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            messages = unwrap(decode_messages(answer.body or b""), self.session.options.decompressed_bytes_max)
            # The index has hashes only, so messages of other topics may be among them.
            found += [(MessageQueue(topic, name, one.queue_id), one) for one in messages if one.topic == topic]
        return sorted(found, key=lambda row: row[1].store_timestamp)
