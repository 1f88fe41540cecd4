"""The usual send, as fast as Python allows: one message, a JSON header, an ordinary topic.

What it trades: it knows by heart what `send` decides anew each time. Per queue it keeps a lane (checked topic,
half an answer), per set of properties a shape (their normal form with the broker's own added), and it writes
answers from a template. All frames of a chunk are walked in one loop, stored in one go, and wait together
for flush and replicas where they must.

Whatever is unusual is left where it is, and `send` handles that frame: another code, a binary header, a topic
to be created, a delay, a transaction, a batch, a oneway, an error of any kind. Leaving it has no effect, so
there is no second set of error answers here. A property test holds both paths equal.
"""

from __future__ import annotations

import struct
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from twinlog.base.system_names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS
from twinlog.broker.sends.pending_sends import CODES
from twinlog.broker.sends.send_template import BORN, BORN_DIGITS, Template, learn
from twinlog.broker.topics.name_rules import topic_name_problem
from twinlog.broker.topics.topic_creation import WRITE
from twinlog.store.log.append import Draft, PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.wire import properties as names
from twinlog.wire.codes import VERSION
from twinlog.wire.java_json.fastjson import dumps
from twinlog.wire.java_text import tags_code
from twinlog.wire.message_id import offset_message_id
from twinlog.wire.numbers import Int, Long
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.sys_flag import TRANSACTION_MASK

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import Tally
    from twinlog.net.connection import Buffer, Connection
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.log.append_run import Row

_PREFIX = struct.Struct(">iI")
_unpack = _PREFIX.unpack_from
_UNIQ_KEY = names.UNIQ_KEY + names.NAME_END
_UNIQ_KEY_BYTES = _UNIQ_KEY.encode()
_KEYS = names.KEYS + names.NAME_END
_TAIL = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_SHAPES_MAX = 4096
_LANES_MAX = 65536
_MISSES_MAX = 8  # a producer whose properties change all the time is not worth another template
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
    d: Int
    e: Int  # queue id
    f: Int  # system flag
    g: Long  # born timestamp
    h: Int  # flag
    i: str  # properties
    j: Int = 0  # reconsume times
    l: Int = 0  # noqa: E741
    m: bool = False  # batch


class _Header(msgspec.Struct, gc=False):
    opaque: Int
    extFields: _Fields
    flag: Int = 0


_decode_header = msgspec.json.Decoder(_Header, strict=False).decode


class _Lane:
    """One queue that may be sent to."""

    __slots__ = ("after_id", "before_id", "tally")

    def __init__(self, before_id: str, after_id: str, tally: Tally) -> None:
        self.before_id = before_id  # the answer's members up to the physical offset in msgId
        self.after_id = after_id  # and from there to the queue offset
        self.tally = tally


class _Shape(NamedTuple):
    """What a set of properties comes to, all but the unique key."""

    stored: bytes  # ends with the unique key's name
    tags_code: int
    keys: str


class _Plan(NamedTuple):
    """How to read a header by its template, and what the constant members say."""

    before: bytes
    after: bytes
    trailer: bytes
    born_skip: int  # from the header's begin to the born timestamp
    key_skip: int  # and to the unique key
    key_length: int
    after_length: int
    trailer_length: int
    lane: _Lane
    stored: bytes
    tags_code: int
    keys: str
    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    reconsume_times: int


class _Known:
    """A header template, and how often it did not fit."""

    __slots__ = ("misses", "plan", "prefix")

    def __init__(self, template: Template, fields: _Fields, lane: _Lane, shape: _Shape) -> None:
        self.prefix, before, key_length, after, trailer = template
        self.misses = 0
        self.plan = _Plan(
            before,
            after,
            trailer,
            len(self.prefix),
            len(self.prefix) + BORN_DIGITS + len(before),
            key_length,
            len(after),
            len(trailer),
            lane,
            *shape,
            fields.b,
            fields.e,
            fields.h,
            fields.f,
            fields.j,
        )


Place = tuple[int, int, int]  # physical offset, queue offset, size
Asker = tuple[_Lane, int | str, str, int]  # lane, opaque, unique key, end of the frame
_PREFIXES = [_PREFIX.pack(length + 4, length) for length in range(1024)]


def _prefix(header_length: int) -> bytes:
    return _PREFIXES[header_length] if header_length < 1024 else _PREFIX.pack(header_length + 4, header_length)


def _begin(status: PutStatus) -> str:
    return f'{{"code":{int(CODES[status])},"extFields":{{'


_OK_BEGIN = _begin(PutStatus.PUT_OK)


def _split_keys(text: str) -> tuple[str, str]:
    """(keys, the other properties): the user's keys differ from message to message, like the unique one."""
    at = text.find(_KEYS)
    if at < 0 or (at and text[at - 1] != "\x02") or text.count(_KEYS) > 1:
        return "", text
    end = text.find("\x02", at)
    end = len(text) if end < 0 else end
    keys = text[at + len(_KEYS) : end]
    return (keys, text[:at] + text[end + 1 :]) if keys else ("", text)


class FastSend:
    """Takes the frames it understands from the front of a chunk."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._topics = ctx.topics
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._known: dict[bytes, _Known] = {}  # by prefix
        self._shapes: dict[str, _Shape | None] = {}  # by properties without UNIQ_KEY; None: unusual
        self._conf: BrokerConf | None = None
        self._topics_edition = -1
        self._allowed = self._waits = False
        # A plug-in around the store sees every message, one by one.
        self._append_run = ctx.store.append_run if type(ctx.store) is MessageStore else lambda host, rows: []

    def take(self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        """Handle frames from `at` on until one is unusual or incomplete; returns where that one begins."""
        ctx = self._ctx
        if ctx.conf is not self._conf or self._topics.edition != self._topics_edition:
            self._renew()
        if not self._allowed:
            return at
        rows: list[Row] = []
        askers: list[Asker] = []
        next_at = at
        while end - next_at > 20 and data[next_at + 8 : next_at + 20] == b'{"code":310,':
            length, header_length = _unpack(data, next_at)
            header_at = next_at + 8
            body_at, frame_end = header_at + header_length, next_at + 4 + length
            # A binary header has its type in the top byte, which makes the length larger than any frame.
            if not body_at < frame_end <= end:
                break
            template = self._known.get(data[header_at : data.find(BORN, header_at, body_at) + 5])
            if template is not None:
                fitting_end = self._take_fitting(template, data, next_at, end, rows, askers)
                if fitting_end > next_at:
                    next_at = fitting_end
                    continue
                template.misses += 1
            decoded = self._decode(data[header_at:body_at], data[body_at:frame_end], frame_end, template)
            if decoded is None:
                break
            rows.append(decoded[0])
            askers.append(decoded[1])
            next_at = frame_end
        if not rows:
            return at
        started = perf_counter()
        places = self._append_run(connection.peer, rows)
        if len(places) < len(rows):
            places = self._store_rest(connection.peer, rows, places)
            if not places:
                return at
        if not self._waits:
            self._answer(askers, places, _OK_BEGIN, out)
            ctx.stats.put_times.took(perf_counter() - started, len(places))
        else:
            # Messages that came together wait together, for the last of them.
            last_offset, _, last_size = places[-1]
            status = ctx.pending_sends.hold(last_offset + last_size, partial(self._deliver, connection, askers, places, started))
            if status is not None:
                self._answer(askers, places, _begin(status), out)
                ctx.stats.put_times.took(perf_counter() - started, len(places))
        return askers[len(places) - 1][3]

    @staticmethod
    def _take_fitting(
        template: _Known, data: bytes, next_at: int, end: int, rows: list[Row], askers: list[Asker]
    ) -> int:
        """Read frames as long as their headers fit `template`; returns where the first begins that does not."""
        prefix = template.prefix
        (before, after, trailer, born_skip, key_skip, key_length, after_length, trailer_length,
         lane, stored, code, keys, topic, queue_id, flag, sys_flag, retries) = template.plan  # fmt: skip
        unpack, startswith = _unpack, data.startswith
        while end - next_at > 20:
            length, header_length = unpack(data, next_at)
            header_at = next_at + 8
            body_at, frame_end = header_at + header_length, next_at + 4 + length
            born_at, key_at = header_at + born_skip, header_at + key_skip
            key_end, trailer_at = key_at + key_length, body_at - trailer_length
            opaque_at = key_end + after_length
            born, key, opaque = data[born_at : born_at + BORN_DIGITS], data[key_at:key_end], data[opaque_at:trailer_at]
            if not (
                body_at < frame_end <= end
                and startswith(prefix, header_at)
                and startswith(before, born_at + BORN_DIGITS)
                and startswith(after, key_end)
                and startswith(trailer, trailer_at)
                and born.isdigit()
                and key.isalnum()
                and opaque.isdigit()
                and len(opaque) < 10
                and (opaque[0] != 0x30 or len(opaque) == 1)
            ):
                break
            uniq_key = key.decode()
            body, properties = data[body_at:frame_end], b"%b%b\x02" % (stored, key)
            rows.append((topic, queue_id, body, properties, int(born), flag, sys_flag, retries, (code, keys, uniq_key)))
            askers.append((lane, opaque.decode(), uniq_key, frame_end))
            next_at = frame_end
        return next_at

    def _deliver(
        self, connection: Connection, askers: list[Asker], places: list[Place], started: float, status: PutStatus
    ) -> None:
        """Write answers that had to wait."""
        self._ctx.stats.put_times.took(perf_counter() - started, len(places))
        out: list[Buffer] = []
        self._answer(askers, places, _begin(status), out)
        connection.send(out)

    @staticmethod
    def _answer(askers: list[Asker], places: list[Place], begin: str, out: list[Buffer]) -> None:
        """Answer those whose message has a place; `begin` says with which code."""
        for (lane, opaque, uniq_key, _), (physical_offset, queue_offset, size) in zip(askers, places, strict=False):
            tally = lane.tally
            tally.count += 1
            tally.bytes += size
            answer = (
                f"{begin}{lane.before_id}{physical_offset:016X}{lane.after_id}{queue_offset}"
                f'","transactionId":"{uniq_key}"}},"flag":1,"language":"JAVA","opaque":{opaque}{_TAIL}'
            ).encode()
            out.append(_prefix(len(answer)))
            out.append(answer)

    def _decode(self, header: bytes, body: bytes, frame_end: int, template: _Known | None) -> tuple[Row, Asker] | None:
        """The same for a header that fits no template; None when `send` must look at it."""
        try:
            command = _decode_header(header)
        except (ValueError, RecursionError):  # msgspec's errors are values too
            return None
        fields = command.extFields
        if command.flag or fields.m or fields.f & TRANSACTION_MASK:
            return None
        lane = self._lanes.get((fields.b, fields.e)) or self._open_lane(fields.b, fields.e)
        text = fields.i
        key_at = text.find(_UNIQ_KEY)
        if lane is None or key_at < 0 or (key_at and text[key_at - 1] != "\x02"):
            return None
        key_end = text.find("\x02", key_at)
        key_end = len(text) if key_end < 0 else key_end
        uniq_key = text[key_at + 9 : key_end]
        if not uniq_key.isalnum() or not uniq_key.isascii():
            return None
        keys, rest = _split_keys(text[:key_at] + text[key_end + 1 :])
        shape = self._shape(rest)
        if shape is None:
            return None
        if not keys and (template is None or template.misses < _MISSES_MAX):
            self._learn(header, fields, uniq_key, lane, shape, template)
        properties = b"%b%b\x02" % (shape.stored, uniq_key.encode())
        if keys:
            properties += b"KEYS\x01%b\x02" % keys.encode()
        found = (shape.tags_code, keys or shape.keys, uniq_key)
        row = (fields.b, fields.e, body, properties, fields.g, fields.h, fields.f, fields.j, found)
        return row, (lane, command.opaque, uniq_key, frame_end)

    def _learn(
        self, header: bytes, fields: _Fields, uniq_key: str, lane: _Lane, shape: _Shape, before: _Known | None
    ) -> None:
        template = learn(header, uniq_key)
        if template is None:
            return
        if len(self._known) >= _LANES_MAX:
            self._known.clear()
        known = self._known[template.prefix] = _Known(template, fields, lane, shape)
        known.misses = before.misses if before is not None else 0

    def _store_rest(self, born_host: tuple[str, int], rows: list[Row], places: list[Place]) -> list[Place]:
        """`places` and those of the rows after them that could be stored.

        The next one is not ordinary for the log, most often because a new part of the segment begins with it.
        """
        while len(places) < len(rows):
            topic, queue_id, body, properties, born, flag, sys_flag, retries, found = rows[len(places)]
            draft = Draft(topic, queue_id, body, properties, born_host, born, flag, sys_flag, retries, found=found)
            appended = self._ctx.store.append(draft)
            if appended.status is not PutStatus.PUT_OK:
                break
            places = [*places, (appended.physical_offset, appended.queue_offset, appended.size)]
            if len(places) < len(rows):
                places += self._append_run(born_host, rows[len(places) :])
        return places

    def _renew(self) -> None:
        """Forget what settings or topics, which have changed, decided."""
        ctx = self._ctx
        self._conf, self._topics_edition = ctx.conf, ctx.topics.edition
        self._lanes.clear()
        self._known.clear()
        self._shapes.clear()
        settings = ctx.settings
        self._waits = ctx.pending_sends.anything_waits
        self._allowed = ctx.is_master and not settings.send_accepted_from_ms and bool(settings.permission & WRITE)

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
            f'{marks},"msgId":"{host}',
            f'","queueId":"{queue_id}","queueOffset":"',
            ctx.stats.puts(topic),
        )
        self._lanes[topic, queue_id] = lane
        return lane

    def _shape(self, rest: str) -> _Shape | None:
        """What these properties come to; None when `send` must look at them."""
        if rest in self._shapes:
            return self._shapes[rest]
        pairs = decode_properties(rest)
        shape = None
        unusual = not pairs.keys().isdisjoint(_UNUSUAL) or any(name.startswith("TIMER_") for name in pairs)
        if self._waits and pairs.get(names.WAIT, "true").lower() != "true":
            unusual = True  # it does not wait with the others
        if not unusual:
            stored = encode_properties({**pairs, **self._marks(), names.CLUSTER: self._ctx.settings.cluster_name})
            shape = _Shape(stored + _UNIQ_KEY_BYTES, tags_code(pairs.get(names.TAGS, "")), pairs.get(names.KEYS, ""))
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        self._shapes[rest] = shape
        return shape

    def _marks(self) -> dict[str, str]:
        settings = self._ctx.settings
        return {names.MSG_REGION: settings.region_id, names.TRACE_ON: "true" if settings.trace_on else "false"}
