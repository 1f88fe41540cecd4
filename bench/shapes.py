"""The shapes in which producers send, as frames made before the clock starts.

A shape says how a producer spells its headers, which queues it takes, and what differs from message to message.
`frames_of` makes one connection's frames. Each message has a unique key: its frame contains CYCLE, which `lanes`
overwrites with a new number whenever it begins with the first frame again.

Property order is that of Java's HashMap for these names; `go` has both its orders by chance, as Go's maps have.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.security.signatures import signature
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.codes import VERSION
from twinlog.wire.command import Command, decode_command, encode_command, encode_header
from twinlog.wire.frame import BINARY, JSON, encode_frame, take_frame
from twinlog.wire.properties import encode_properties

CYCLE = "QZQZ"  # four digits stand here on the wire
QUEUES = 8
FRAMES = 2048  # of one connection, sent again and again with a new CYCLE
BORN_MS = 1_700_000_000_000
DELAY_LEVEL = 18  # two hours: what is measured is taking it, not the later delivery
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
GO_VERSION = 317
# Code 10's names for the members of code 310, in the order of Java's HashMap.
LONG_NAMES = {
    "e": "queueId",
    "h": "flag",
    "f": "sysFlag",
    "j": "reconsumeTimes",
    "m": "batch",
    "k": "unitMode",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "a": "producerGroup",
    "n": "bname",
    "b": "topic",
    "g": "bornTimestamp",
    "i": "properties",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one kind of producer sends."""

    title: str
    goal: float  # ours / Java
    own_queue: bool = False  # one queue per connection; otherwise queues in turn
    topics: int = 1
    code: int = 310
    header_type: int = JSON
    spelling: str = "java"  # or go-order, go, blanks
    keys: bool = False  # KEYS differ
    trace: bool = False  # a traceparent differs
    filtered: bool = False  # ten tags in turn, and properties to select by
    batch: int = 1
    delay: bool = False
    oneway: bool = False
    body_bytes: int = 128
    single: bool = False  # one connection with one send on its way


SHAPES = {
    "main": Shape(title="queues in turn, keys and a traceparent that differ", goal=1.5, keys=True, trace=True),
    "main-1k": Shape(
        title="queues in turn, keys and a traceparent that differ, 1 KiB",
        goal=1.5,
        keys=True,
        trace=True,
        body_bytes=1024,
    ),
    "turn": Shape(title="queues in turn, same properties", goal=2.0),
    "own-queue": Shape(title="one queue per connection", goal=2.5, own_queue=True),
    "own-queue-1k": Shape(title="one queue per connection, 1 KiB", goal=1.8, own_queue=True, body_bytes=1024),
    "topics": Shape(title="500 topics in turn", goal=1.8, topics=500),
    "go-order": Shape(title="Go's order of members", goal=1.5, spelling="go-order"),
    "go": Shape(title="as the Go client sends: code 10, fields in any order", goal=1.3, code=10, spelling="go"),
    "keys": Shape(title="KEYS differ", goal=1.5, keys=True),
    "trace": Shape(title="a traceparent differs", goal=1.5, trace=True),
    "v1": Shape(title="V1 header (code 10)", goal=1.3, code=10),
    "binary": Shape(title="binary header", goal=1.3, header_type=BINARY),
    "batch": Shape(title="batches of 16", goal=1.0, code=320, batch=16),
    "delay": Shape(title="delay level", goal=1.3, delay=True),
    "oneway": Shape(title="oneway", goal=1.3, oneway=True),
    "blanks": Shape(title="JSON with blanks", goal=1.0, spelling="blanks"),
    "single": Shape(title="one in flight", goal=2.0, keys=True, trace=True, single=True),
}

# What filters read: a tenth of it has TAGS Tag3, a tenth has n = 3.
BACKLOG = Shape(title="", goal=0, keys=True, trace=True, filtered=True)
BACKLOG_TAG, BACKLOG_SQL, BACKLOG_KEPT = "Tag3", "n = 3 AND region = 'eu'", 10


def frames_of(shape: Shape, topic: str, *, lane: int, round_id: int, count: int = 0) -> list[bytes]:
    """The frames of connection number `lane`; `round_id` makes their keys different from every other round's."""
    body = bytes(number % 251 for number in range(shape.body_bytes))
    frames = []
    for number in range(count or frames_count(shape)):
        elements = list(_elements(shape, body, lane, round_id, number))
        fields = {
            "a": "BENCH_PG",
            "b": topic_name(shape, topic, number + lane * 125),
            "c": "TBW102",
            "d": "8",
            "e": str(queue_of(shape, number, lane)),
            "f": "0",
            "g": str(BORN_MS + number),
            "h": "0",
            "i": elements[0].properties.decode(),
            "j": "0",
            "k": "false",
            "m": "true" if shape.batch > 1 else "false",
            "n": "broker-a",
        }
        if shape.batch > 1:
            unique = {"UNIQ_KEY": _unique_key(lane, round_id, number, 0xFFFF), "WAIT": "true"}
            fields["i"] = encode_properties(unique).decode()
        frames.append(_frame(shape, number, fields, encode_batch(elements) if shape.batch > 1 else body))
    return frames


def fixed_frame(frame: bytes, account: str | None) -> bytes:
    """The frame as it is sent in every cycle, signed if there is an account; a signature made later would take time."""
    data = bytearray(frame.replace(CYCLE.encode(), b"0000"))
    if account is None:
        return bytes(data)
    name, _, secret = account.partition(":")
    taken = take_frame(data)
    assert taken is not None
    command = decode_command(taken)
    fields = {**(command.fields or {}), "AccessKey": name}
    made = signature(fields, command.body, secret)
    fields = {**(command.fields or {}), "Signature": made, "AccessKey": name}
    return encode_command(dataclasses.replace(command, fields=fields), taken.header_type)


def frames_count(shape: Shape) -> int:
    """A multiple of the queues, topics and tags, so that the next cycle goes on in turn."""
    if shape.batch > 1:
        return FRAMES // 4
    return 2000 if shape.topics > 1 or shape.filtered else FRAMES


def queue_of(shape: Shape, number: int, lane: int) -> int:
    if shape.topics > 1:
        return 0
    return lane % QUEUES if shape.own_queue else (number + 2 * lane) % QUEUES


def topic_name(shape: Shape, topic: str, number: int) -> str:
    return topic if shape.topics == 1 else f"{topic}{number % shape.topics:03d}"


def topics_of(shape: Shape, topic: str) -> list[str]:
    return [topic_name(shape, topic, number) for number in range(shape.topics)]


def stored_queues(shape: Shape, topic: str) -> list[tuple[str, int]]:
    """Where the messages of this shape are stored: the queues whose ends grow."""
    if shape.delay:
        return [(DELAY_TOPIC, DELAY_LEVEL - 1)]
    return [(name, queue) for name in topics_of(shape, topic) for queue in range(1 if shape.topics > 1 else QUEUES)]


def _unique_key(lane: int, round_id: int, number: int, part: int) -> str:
    return f"7F000001{lane:04X}{round_id & 0xFFFFFFFF:08X}{CYCLE}{number:04X}{part:04X}"


def _elements(shape: Shape, body: bytes, lane: int, round_id: int, number: int) -> Iterator[BatchElement]:
    chance = random.Random(round_id << 32 | number << 8 | lane)
    for part in range(shape.batch):
        properties = {}
        if shape.keys:
            properties["KEYS"] = f"order-{round_id & 0xFFFFFF:06x}-{lane}-{CYCLE}{number:04d}"
        if shape.trace:
            trace_id, span = chance.randbytes(14).hex() + CYCLE, chance.randbytes(8).hex()
            properties["traceparent"] = f"00-{trace_id}-{span}-01"
        properties["UNIQ_KEY"] = _unique_key(lane, round_id, number, part)
        properties["WAIT"] = "true"
        if shape.delay:
            properties["DELAY"] = str(DELAY_LEVEL)
        properties["TAGS"] = f"Tag{number % BACKLOG_KEPT}" if shape.filtered else "TagA"
        if shape.filtered:
            properties |= {"n": str(number % BACKLOG_KEPT), "region": "eu"}
        if shape.spelling == "go":
            properties = _shuffled(properties, chance)
        yield BatchElement(body, encode_properties(properties))


def _frame(shape: Shape, number: int, fields: dict[str, str], body: bytes) -> bytes:
    flag = 2 if shape.oneway else 0
    if shape.code == 10:
        fields = {name: fields[short] for short, name in LONG_NAMES.items()}
    if shape.spelling == "go":
        fields["defaultTopicQueueNums"] = "4"
        fields["maxReconsumeTimes"] = "0"
        del fields["bname"]
        fields = _shuffled(fields, random.Random(number))
    if shape.spelling in ("go", "go-order"):
        members = {
            "code": shape.code,
            "language": "GO",
            "version": GO_VERSION,
            "opaque": number,
            "flag": flag,
            "remark": "",
            "extFields": fields,
        }
        return encode_frame(json.dumps(members, separators=(",", ":")).encode(), body, JSON)
    command = Command(shape.code, opaque=number, flag=flag, version=VERSION, fields=fields, body=body)
    if shape.spelling == "blanks":
        return encode_frame(json.dumps(json.loads(encode_header(command))).encode(), body, JSON)
    return encode_command(command, shape.header_type)


def _shuffled(members: dict[str, str], chance: random.Random) -> dict[str, str]:
    names = list(members)
    chance.shuffle(names)
    return {name: members[name] for name in names}
