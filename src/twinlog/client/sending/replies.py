"""Request and reply over topics: a producer waits for the one message that answers its own."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from twinlog.base.system_names import reply_topic
from twinlog.client.answer_fields import read_number
from twinlog.client.errors import BadArgument
from twinlog.client.sending.outgoing import Outgoing
from twinlog.net.connection import Handler, Request
from twinlog.wire import properties as names
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.compression import BODY_BYTES_MAX, decompress
from twinlog.wire.message import Message
from twinlog.wire.properties import decode_properties

REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Expected:
    """A reply that is waited for, and the properties by which its request asks for it."""

    properties: dict[str, str]
    answer: asyncio.Future[Message]


class Replies:
    """The replies that one producer waits for, by correlation id."""

    def __init__(self, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[str, asyncio.Future[Message]] = {}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take_reply}

    @contextmanager
    def expect(self, client_id: str, timeout_ms: int) -> Iterator[Expected]:
        """Properties for a request, and the future of its reply."""
        correlation = str(uuid.uuid4())
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        properties = {
            names.CORRELATION_ID: correlation,
            names.REPLY_TO_CLIENT: client_id,
            names.TTL: str(timeout_ms),
        }
        try:
            yield Expected(properties, answer)
        finally:
            self._waiting.pop(correlation, None)

    def _take_reply(self, request: Request) -> Command:
        fields = request.fields or {}
        properties = decode_properties(fields.get("properties", ""))
        flags = read_number(fields, "sysFlag", 0)
        body = decompress(request.body or b"", flags, self._bytes_max)
        message = Message(topic=fields.get("topic", ""), body=body, properties=properties)
        waiting = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        return request.reply()


def reply_to(request: Message, body: bytes | str) -> Outgoing:
    """The message that answers `request`; send it with any producer."""
    cluster, correlation = request.properties.get(names.CLUSTER), request.properties.get(names.CORRELATION_ID)
    client = request.properties.get(names.REPLY_TO_CLIENT)
    if not cluster or not correlation or not client:
        raise BadArgument(f"message {request.message_id} of {request.topic!r} does not ask for a reply")
    properties = {
        names.MSG_TYPE: REPLY,
        names.CORRELATION_ID: correlation,
        names.REPLY_TO_CLIENT: client,
        names.TTL: request.properties.get(names.TTL, "3000"),
    }
    return Outgoing(reply_topic(cluster), body, system_properties=properties)
