"""A message as text and as JSON."""

from __future__ import annotations

import base64
from typing import Any

from twinlog.base.addresses import address_text
from twinlog.client import BadArgument
from twinlog.wire.message import Message


def body_text(body: bytes, charset: str = "UTF-8") -> str:
    """The body as text; what does not decode or is not printable is shown escaped."""
    try:
        text = body.decode(charset, "backslashreplace")
    except LookupError:
        raise BadArgument(f"character set {charset!r} is unknown; use UTF-8, GBK, ...") from None
    return "".join(c if c.isprintable() or c in "\t" else c.encode("unicode_escape").decode() for c in text)


def message_data(message: Message, *, with_body: bool = True) -> dict[str, Any]:
    """The message for JSON: `body` as text, or `bodyBase64` when it is not UTF-8."""
    data: dict[str, Any] = {
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "topic": message.topic,
        "tags": message.tags,
        "keys": message.keys,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": address_text(*message.born_host),
        "storeHost": address_text(*message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "properties": message.properties,
    }
    if with_body:
        try:
            data["body"] = message.body.decode()
        except UnicodeDecodeError:
            data["bodyBase64"] = base64.b64encode(message.body).decode()
    return data
