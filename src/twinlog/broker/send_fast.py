"""The usual send, as fast as Python allows: one message, JSON header, an ordinary topic, nothing to wait for.

What it trades: it knows by heart what `send` decides anew each time. Per queue it keeps a lane (checked topic,
half an answer), per set of properties a shape (their normal form with the broker's own added), and it writes
answers from a template. All frames of a chunk are walked in one loop.

Whatever is unusual is left where it is, and `send` handles that frame: another code, a binary header, a topic
to be created, a delay, a transaction, a batch, a oneway, an error of any kind. Leaving it has no effect, so
there is no second set of error answers here. A property test holds both paths equal.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from twinlog.broker.names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, topic_name_problem
from twinlog.broker.topic_creation import WRITE
from twinlog.store.append import Draft, PutStatus
from twinlog.wire import properties as names
from twinlog.wire.codes import VERSION
from twinlog.wire.fastjson import dumps
from twinlog.wire.java_text import tags_code
from twinlog.wire.message_id import offset_message_id
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.sys_flag import TRANSACTION_MASK

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats import Tally
    from twinlog.net.connection import Buffer, Connection
    from twinlog.settings.broker_conf import BrokerConf

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_PREFIX = struct.Struct(">iI")
_UNIQ_KEY = names.UNIQ_KEY + names.NAME_END
_UNIQ_KEY_BYTES = _UNIQ_KEY.encode()
_TAIL = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_SHAPES_MAX = 4096
_LANES_MAX = 65536
# Members that make `send` do more than store the message as it is.
_UNUSUAL = frozenset(
    {
        names.DELAY,
        names.TRAN_MSG,
        names.POP_CK,
        names.UNIQ_KEY,
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
    }
)


class _Fields(msgspec.Struct, gc=False):
    """The short send header: what counts here, and what `send` wants to see there."""

    a: str
    b: str  # topic
    c: str
    d: Int32
    e: int  # queue id
    f: int  # system flag
    g: int  # born timestamp
    h: int  # flag
    i: str  # properties
    j: int = 0  # reconsume times
    l: Int32 = 0  # noqa: E741
    m: bool = False  # batch


class _Header(msgspec.Struct, gc=False):
    opaque: Int32
    extFields: _Fields
    flag: int = 0


_decode = msgspec.json.Decoder(_Header, strict=False).decode


class _Lane:
    """One queue that may be sent to."""

    __slots__ = ("after_id", "before_id", "tally")

    def __init__(self, before_id: str, after_id: str, tally: Tally) -> None:
        self.before_id = before_id  # the answer up to the physical offset in msgId
        self.after_id = after_id  # and from there to the queue offset
        self.tally = tally


class _Shape(NamedTuple):
    """What a set of properties comes to, all but the unique key."""

    stored: bytes  # ends with the unique key's name
    tags_code: int
    keys: str


class FastSend:
    """Takes the frames it understands from the front of a chunk."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._shapes: dict[str, _Shape | None] = {}  # by properties without UNIQ_KEY; None: unusual
        self._conf: BrokerConf | None = None
        self._topics_edition = -1
        self._allowed = False

    def take(self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        """Handle frames from `at` on until one is unusual or incomplete; returns where that one begins."""
        ctx = self._ctx
        if ctx.conf is not self._conf or ctx.topics.edition != self._topics_edition:
            self._renew()
        if not self._allowed:
            return at
        append, lanes, shapes = ctx.store.append, self._lanes, self._shapes
        unpack, pack, peer, put_ok = _PREFIX.unpack_from, _PREFIX.pack, connection.peer, PutStatus.PUT_OK
        while end - at > 20:
            if data[at + 8 : at + 20] != b'{"code":310,':
                break
            length, header_length = unpack(data, at)
            body_at, frame_end = at + 8 + header_length, at + 4 + length
            # A binary header has its type in the top byte, which makes the length larger than any frame.
            if not body_at < frame_end <= end:
                break
            try:
                header = _decode(data[at + 8 : body_at])
            except (msgspec.DecodeError, ValueError):
                break
            fields = header.extFields
            sys_flag = fields.f
            if header.flag or fields.m or sys_flag & TRANSACTION_MASK:
                break
            queue_id = fields.e
            lane = lanes.get((fields.b, queue_id))
            if lane is None:
                lane = self._open_lane(fields.b, queue_id)
                if lane is None:
                    break

            # Properties differ from message to message by the unique key alone, so the rest is looked up.
            text = fields.i
            key_at = text.find(_UNIQ_KEY)
            value_at = key_at + 9
            value_end = text.find("\x02", value_at)
            if value_end < 0:
                value_end = len(text)
            uniq_key = text[value_at:value_end]
            rest = text[:key_at] + text[value_end + 1 :]
            if key_at < 0 or not uniq_key.isalnum() or not uniq_key.isascii():
                break
            if key_at and text[key_at - 1] != "\x02":
                break
            shape = shapes.get(rest)
            if shape is None and (rest in shapes or (shape := self._shape(rest)) is None):
                break

            appended = append(
                Draft(
                    fields.b,
                    queue_id,
                    data[body_at:frame_end],
                    b"%b%b\x02" % (shape.stored, uniq_key.encode()),
                    peer,
                    fields.g,
                    fields.h,
                    sys_flag,
                    fields.j,
                    found=(shape.tags_code, shape.keys, uniq_key),
                )
            )
            if appended.status is not put_ok:
                break
            tally = lane.tally
            tally.count += 1
            tally.bytes += appended.size
            answer = (
                f"{lane.before_id}{appended.physical_offset:016X}{lane.after_id}{appended.queue_offset}"
                f'","transactionId":"{uniq_key}"}},"flag":1,"language":"JAVA","opaque":{header.opaque}{_TAIL}'
            ).encode()
            length = len(answer)
            out.append(pack(length + 4, length))
            out.append(answer)
            at = frame_end
        return at

    def _renew(self) -> None:
        """Forget what settings or topics, which have changed, decided."""
        ctx = self._ctx
        self._conf, self._topics_edition = ctx.conf, ctx.topics.edition
        self._lanes.clear()
        self._shapes.clear()
        settings = ctx.settings
        self._allowed = (
            ctx.is_master
            and not ctx.acks.anything_waits
            and not settings.send_accepted_from_ms
            and bool(settings.permission & WRITE)
        )

    def _open_lane(self, topic: str, queue_id: int) -> _Lane | None:
        ctx = self._ctx
        config = ctx.topics.get(topic)
        if config is None or topic_name_problem(topic) is not None or topic in SEND_FORBIDDEN_TOPICS:
            return None
        if topic.startswith(RETRY_PREFIX) or config.attributes or config.topic_filter_type != "SINGLE_TAG":
            return None
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return None
        if len(self._lanes) >= _LANES_MAX:
            self._lanes.clear()
        settings = ctx.settings
        marks = dumps(self._marks())[1:-1].decode()
        host = offset_message_id(settings.broker_ip1, settings.listen_port, 0)[:-16]
        lane = _Lane(
            f'{{"code":0,"extFields":{{{marks},"msgId":"{host}',
            f'","queueId":"{queue_id}","queueOffset":"',
            ctx.stats.puts(topic),
        )
        self._lanes[topic, queue_id] = lane
        return lane

    def _shape(self, rest: str) -> _Shape | None:
        """What these properties come to; None when `send` must look at them."""
        pairs = decode_properties(rest)
        shape = None
        if pairs.keys().isdisjoint(_UNUSUAL) and not any(name.startswith("TIMER_") for name in pairs):
            stored = encode_properties({**pairs, **self._marks(), names.CLUSTER: self._ctx.settings.cluster_name})
            shape = _Shape(stored + _UNIQ_KEY_BYTES, tags_code(pairs.get(names.TAGS, "")), pairs.get(names.KEYS, ""))
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        self._shapes[rest] = shape
        return shape

    def _marks(self) -> dict[str, str]:
        settings = self._ctx.settings
        return {names.MSG_REGION: settings.region_id, names.TRACE_ON: "true" if settings.trace_on else "false"}
