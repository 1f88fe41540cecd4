"""A message as text and as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from twinlog.base.addresses import address_text
from twinlog.client import BadArgument, Outgoing
from twinlog.wire import properties as names
from twinlog.wire.message import Message

# Properties that clients and brokers set themselves: a message that is sent again gets new ones.
_OWN_PROPERTIES = names.RESERVED.union(
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
) - {names.NAME_END, names.PAIR_END, names.KEY_SEPARATOR}


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
        "flag": message.flag,
        "properties": message.properties,
    }
    if with_body:
        try:
            data["body"] = message.body.decode()
        except UnicodeDecodeError:
            data["bodyBase64"] = base64.b64encode(message.body).decode()
    return data


def resendable(message: Message, topic: str) -> Outgoing:
    """The message to be sent again, as a new one: its body, tag, keys and properties."""
    return Outgoing(
        topic,
        message.body,
        tags=message.tags or "",
        keys=message.keys,
        properties=_user_properties(message.properties),
        sharding_key=message.properties.get(names.SHARDING_KEY, ""),
        flag=message.flag,
    )


def parse_message(line: bytes, topic: str | None = None) -> Outgoing:
    """A message in the form of `message_data`, to be sent to `topic` or its own; BadArgument for anything else.

    Only `body` or `bodyBase64` must be there. Places and times of the original are not sent.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"line {_start(line)} is not JSON: {error}; without --json a line is a body") from None
    if not isinstance(data, dict):
        raise BadArgument(f"line {_start(line)} is not a JSON object, as `twinlog consume --json` prints them")
    target = topic or _text(data, "topic", line)
    if not target:
        raise BadArgument(f"line {_start(line)} names no topic; give one with -t")
    keys, properties = data.get("keys") or [], data.get("properties") or {}
    words = [keys] if isinstance(keys, str) else keys
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadArgument(f"line {_start(line)}: keys {keys!r} is not a list of texts")
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise BadArgument(f"line {_start(line)}: properties {properties!r} is not an object of texts")
    flag = data.get("flag") or 0
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise BadArgument(f"line {_start(line)}: flag {flag!r} is not a number of 32 bits")
    message = Outgoing(
        target,
        _body(data, line),
        tags=_text(data, "tags", line),
        keys=words,
        properties=_user_properties(properties),
        sharding_key=properties.get(names.SHARDING_KEY, ""),
        flag=flag,
    )
    texts = (message.tags, message.sharding_key, *words, *message.properties, *message.properties.values())
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"line {_start(line)} has half of a character, which no message can hold: {error}") from None
    return message


def _body(data: dict[str, Any], line: bytes) -> bytes:
    if "bodyBase64" in data:
        try:
            return base64.b64decode(data["bodyBase64"], validate=True)
        except (ValueError, TypeError):
            raise BadArgument(f"line {_start(line)}: bodyBase64 is not base64") from None
    if not isinstance(data.get("body"), str):
        raise BadArgument(f"line {_start(line)} has neither body, a text, nor bodyBase64")
    try:
        return data["body"].encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"line {_start(line)}: half of a character in body: {error}; use bodyBase64") from None


def _text(data: dict[str, Any], name: str, line: bytes) -> str:
    value = data.get(name) or ""
    if not isinstance(value, str):
        raise BadArgument(f"line {_start(line)}: {name} {value!r} is not a text")
    return value


def _user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _OWN_PROPERTIES}


def _start(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "replace"))
