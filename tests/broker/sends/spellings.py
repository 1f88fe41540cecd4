"""Sends as clients spell them: every header type, order of members, set of names and kind of message."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from tests.broker.running import SEND_FIELDS

from twinlog.base.system_names import SCHEDULE_TOPIC, TIMER_TOPIC
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.command import BINARY, Command, encode_command
from twinlog.wire.fields import camel
from twinlog.wire.frame import encode_frame
from twinlog.wire.headers import SendHeader

LONG_NAMES = dict(zip("abcdefghijklm", map(camel, SendHeader.__dataclass_fields__), strict=False)) | {"n": "bname"}
UNIQ = "UNIQ_KEY\x017F0000011234567890ABCDEF00000001\x02"
PIECES = [
    UNIQ,
    "UNIQ_KEY\x01\x02",
    'UNIQ_KEY\x01has "quote\\\x02',
    "UNIQ_KEY\x01schlüssel\x02",
    "XUNIQ_KEY\x01fake\x02",
    "TAGS\x01a\x02",
    "TAGS\x01中\U0001f600\x02",
    "KEYS\x01k1 k2\x02",
    "KEYS\x01k3\x02",
    "KEYS\x01\x02",
    "KEYS\x01schlüssel k1",
    "MYKEYS\x01k1\x02",
    "WAIT\x01true\x02",
    "WAIT\x01false\x02",
    "DELAY\x012\x02",
    "DELAY\x0118\x02",
    "DELAY\x0119\x02",
    "DELAY\x010\x02",
    "DELAY\x01-1\x02",
    "DELAY\x01 3\x02",
    "DELAY\x01x\x02",
    "TIMER_DELAY_SEC\x019\x02",
    "TIMER_OUT_MS\x019\x02",
    "TRAN_MSG\x01true\x02",
    "TRAN_MSG\x01TRUE\x02",
    "TRAN_MSG\x01false\x02",
    "PGROUP\x01PG\x02",
    "__transactionId__\x01t\x02",
    "REAL_TOPIC\x01R\x02",
    "CLUSTER\x01other\x02",
    "MSG_REGION\x01r\x02",
    "POP_CK\x01x\x02",
    "colour\x01中文\x02",
    "a.b*\x01regular (expression)\x02",
    "two\x01separators\x01here\x02",
    "novalue\x01\x02",
    "noname",
    "\x01nameless\x02",
    "\x02",
    "last\x01one",
]
unusual_fields = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from(["PG", ""]),
        "b": st.sampled_from(["T", "T2", "%RETRY%CG", SCHEDULE_TOPIC, TIMER_TOPIC, "bad/topic", "", "x" * 200]),
        "d": st.sampled_from(["8", "x", "1.0"]),
        "e": st.sampled_from(["0", "1", "3", "9", "-1", "x", "1.0", " 2", "٣", str(2**33)]),
        "f": st.sampled_from(["0", "1", "769", "4", "8", "12", "16", "64", "x", "1e0"]),
        "g": st.sampled_from(["0", "1700000000000", "-5", "+5", "", "x", str(2**70)]),
        "h": st.sampled_from(["0", "7", "-1", "1.0", str(2**31)]),
        "i": st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
        "j": st.sampled_from(["0", "3", "99", "", "x"]),
        "k": st.sampled_from(["true", "x"]),
        "l": st.sampled_from(["1", "16", "x"]),
        "m": st.sampled_from(["false", "true", "0", "1", "FALSE", "True", "maybe"]),
        "n": st.sampled_from(["broker-a", "ü", "\\"]),
    },
)
_extras = st.sampled_from(
    [
        "",
        "",
        "TAGS\x01a\x02",
        "KEYS\x01k1 {0}\x02",
        "traceparent\x0100-{0}\x02userId\x01{0}\x02",
        "DELAY\x012\x02",
        "WAIT\x01true\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
        "colour\x01中文{0}\x02",
    ]
)
usual_fields = st.builds(
    lambda queue, born, number, before, after: {
        "e": queue,
        "g": str(born),
        "i": f"{before}UNIQ_KEY\x01{number:032X}\x02{after}".format(number),
    },
    st.sampled_from(["0", "2"]),
    st.integers(10**12, 10**13 - 1),
    st.integers(0, 2**64),
    _extras.filter(lambda text: "KEYS" not in text),
    _extras,
)
elements = st.builds(
    BatchElement,
    st.binary(max_size=20),
    st.sampled_from([b"", UNIQ.encode(), UNIQ.encode() + b"KEYS\x01k1\x02TAGS\x01a\x02", b"KEYS\x01k1 k2"]),
    st.sampled_from([0, 7]),
)
batch_bodies = st.tuples(st.lists(elements, min_size=1, max_size=4), st.sampled_from([1, 1, 20])).map(
    lambda drawn: encode_batch(drawn[0] * drawn[1])
)
bodies = st.binary(max_size=40) | batch_bodies
STYLES = ["java", "go", "shuffled", "blanks", "numbers", "escaped", "long", "binary", "binary long"]


def spell(style: str, command: Command, shuffled: list[int]) -> bytes:
    """The frame of a send in one of the STYLES; `shuffled` is an order of members."""
    fields = dict(command.fields or {})
    if "long" in style:
        fields = {LONG_NAMES.get(name, name): value for name, value in fields.items()}
        command = Command(10, command.opaque, command.flag, fields=fields, body=command.body)
    if style in ("java", "long"):
        return encode_command(command)
    if style.startswith("binary"):
        return encode_command(command, BINARY)
    header = {"code": command.code, "language": "GO", "version": 317, "opaque": command.opaque, "flag": command.flag}
    header |= {"remark": "", "extFields": fields}
    if style == "shuffled":
        names = [name for _, name in sorted(zip(shuffled, fields, strict=False))]
        header["extFields"] = {name: fields[name] for name in names}
        names = [name for _, name in sorted(zip(shuffled, header, strict=False))]
        header = {name: header[name] for name in names}
    if style == "numbers":
        header["extFields"] = {
            name: int(value) if value.isascii() and value.isdecimal() and str(int(value)) == value else value
            for name, value in fields.items()
        }
    separators = None if style == "blanks" else (",", ":")
    text = json.dumps(
        header, separators=separators, ensure_ascii=style != "go", indent=1 if style == "blanks" else None
    )
    if style == "escaped":
        text = text.replace('"g"', '"\\u0067"')
    return encode_frame(text.encode(), command.body)


messages = st.builds(
    lambda style, given, usual, body, flag, code, opaque, shuffled: spell(
        style, Command(code, opaque, flag, fields={**SEND_FIELDS, **usual, **given}, body=body or None), shuffled
    ),
    st.sampled_from([*STYLES, "java", "java"]),
    unusual_fields | st.just({}) | st.just({}),
    usual_fields,
    bodies,
    st.sampled_from([0, 0, 0, 2, 2, 1, 4]),
    st.sampled_from([310, 310, 310, 320, 10]),
    st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9),
    st.permutations(range(16)),
)
batches = st.builds(
    lambda style, properties, queue, body, flag, opaque: spell(
        style,
        Command(320, opaque, flag, fields={**SEND_FIELDS, "m": "true", "e": queue, "i": properties}, body=body or None),
        list(range(16)),
    ),
    st.sampled_from(STYLES),
    st.sampled_from(["", UNIQ, f"WAIT\x01true\x02{UNIQ}", f"DELAY\x010\x02{UNIQ}", "WAIT\x01false\x02", *PIECES]),
    st.sampled_from(["0", "2", "9"]),
    batch_bodies | batch_bodies | batch_bodies | st.binary(max_size=60),
    st.sampled_from([0, 0, 0, 2]),
    st.integers(0, 9),
)
sends = messages | messages | batches
