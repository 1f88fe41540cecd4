"""Requests that are made to cost much: references that expand, depth, giant numbers, bombs, frames without end.

Each is small enough to be played often. What they share: a handler answers or refuses, in proportion to their size.
"""

from __future__ import annotations

import json
import random
import struct
import zlib

from twinlog.wire import bodies
from twinlog.wire.command import BINARY, JSON, Command, encode_command, encode_header
from twinlog.wire.frame import HEADER_BYTES_MAX, encode_frame

NUMBERS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "2147483648",
    "-2147483649",
    str(2**63),
    "9" * 30,
    "9" * 5000,
    "1_0",
)
MEMBERS = sorted({name for kind in bodies.Body.__subclasses__() for name in kind.__struct_encode_fields__})
FIELDS = """topic queueId offset commitOffset consumerGroup group timestamp brokerName brokerAddr clusterName brokerId
haServerAddr heartbeatTimeoutMillis compressed bodyCrc32 readQueueNums writeQueueNums perm attributes key value
namespace maxNum beginTimestamp endTimestamp index count a b c d e f g h i j k l m""".split()
REGISTER = 103


def hostile(codes: list[int], dice: random.Random) -> bytes:
    """One frame, or the begin of one, for a server that handles `codes`."""
    code = dice.choice(codes)
    match dice.randrange(8):
        case 0:
            return _frame(code, dice, _references(dice))
        case 1:
            return _frame(code, dice, _deep(dice))
        case 2:
            return _frame(code, dice, _member(dice, dice.choice(NUMBERS)))
        case 3:
            return _bomb(REGISTER if REGISTER in codes else code, dice)
        case 4:
            return _giant_header(code, dice)
        case 5:
            return _unfinished(code, dice)
        case 6:
            return _frame(code, dice, b"{a:[" + dice.choice((b"1,", b"'',", b"[],", b",,")) * 50_000 + b"]}")
        case _:
            opaque, queue_id = dice.choices(NUMBERS, k=2)
            header = f'{{"code":{code},"opaque":{opaque},"extFields":{{"queueId":{queue_id}}}}}'
            return encode_frame(header.encode(), b"{}")


def _frame(code: int, dice: random.Random, body: bytes) -> bytes:
    fields = {name: dice.choice((*NUMBERS, "T", "G", "0", "true", "127.0.0.1:1")) for name in dice.choices(FIELDS, k=6)}
    return encode_command(Command(code, 1, fields=fields, body=body), dice.choice((JSON, BINARY)))


def _member(dice: random.Random, text: str) -> bytes:
    name = dice.choice(MEMBERS)
    return f'{{"{name}":{dice.choice((text, f"[{text}]", f"{{0:{text}}}", f"{{{{a:{text}}}:{text}}}"))}}}'.encode()


def _references(dice: random.Random) -> bytes:
    shapes: tuple[dict, ...] = (
        {"x": [1] * 3000, dice.choice(MEMBERS): [{"$ref": "$.x"}] * 300},
        {f"l{n}": [{"$ref": f"$.l{n + 1}"}] * 2 for n in range(30)},
        {dice.choice(MEMBERS): {"a": {"$ref": dice.choice(("$", "@", "..", "$.a", "$[0]", "$.x.y[9999999999]"))}}},
        {f"l{n}": [{"$ref": f"$.l{n + 1}"}] for n in range(500)},
    )
    return json.dumps(dice.choice(shapes)).encode()


def _deep(dice: random.Random) -> bytes:
    opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a:", b"}"), (b"{{", b":1}:1}")))
    depth = dice.choice((63, 65, 500, 5_000))
    text = opening * depth + b"1" + closing * dice.choice((depth, 0))
    return b'{"%b":%b}' % (dice.choice(MEMBERS).encode(), text) if dice.random() < 0.7 else text


def _bomb(code: int, dice: random.Random) -> bytes:
    """A compressed registration that inflates a thousandfold, or whose parts do not fit."""
    version = b'{"counter":%b}' % dice.choice(NUMBERS).encode() if dice.random() < 0.3 else b"{}"
    topic = dice.choice((b"T 1 1 6 S", b"T %b 1 6 S" % dice.choice(NUMBERS).encode(), b"", b" " * 1000))
    count = dice.choice((1, 20_000))
    topics = (struct.pack(">i", len(topic)) + topic) * count
    counted = struct.pack(">i", dice.choice((count, count + 1, -1, 2**31 - 1)))
    rest = dice.choice((struct.pack(">i", 2) + b"[]" + struct.pack(">i", 0), b"", bytes(2_000_000)))
    body = zlib.compress(struct.pack(">i", len(version)) + version + counted + topics + rest)
    fields = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0", "compressed": "true"}
    return encode_command(Command(code, 1, version=479, fields=fields, body=body[: dice.choice((len(body), 40))]))


def _giant_header(code: int, dice: random.Random) -> bytes:
    if dice.random() < 0.5:
        fields = {f"{n}": "v" for n in range(dice.choice((1024, 1025, 20_000)))}
        header_type = dice.choice((JSON, BINARY))
        return encode_frame(encode_header(Command(code, 1, fields=fields), header_type), b"", header_type)
    return struct.pack(">ii", 15_000_000, HEADER_BYTES_MAX + dice.choice((0, 1))) + b'{"code":1'


def _unfinished(code: int, dice: random.Random) -> bytes:
    frame = encode_command(Command(code, 1, body=bytes(dice.choice((10, 200_000)))))
    longer = struct.pack(">i", dice.choice((len(frame) + 1, 15_000_000, 2**31 - 1, -1)))
    return (longer + frame[4:])[: dice.choice((3, 7, 20, len(frame)))]
