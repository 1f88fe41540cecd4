"""The usual send, as fast as Python allows: one message, a JSON header, an ordinary topic.

What it trades: memory for the decisions that `send` makes for each message. It caches
  per queue           a CheckedQueue: the topic is checked, and parts of the answer are ready,
  per properties      StoredProperties: their normal form, with the broker's own properties added,
  per header prefix   a KnownHeader: the constant bytes of one producer's headers and what they mean.
All frames of a chunk are walked in one loop, appended with one call, and wait together for flush and replicas.
A change of settings or topics clears the caches.

A frame that is unusual is not touched, and `send` handles it: another code, a binary header, a topic to be created,
a delay, a transaction, a batch, a oneway, an error of any kind. So all error answers are made in `send`. A property
test holds both paths equal.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from twinlog.base.system_names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS
from twinlog.broker.sends.pending_sends import CODES
from twinlog.broker.sends.send_checks import region_and_trace
from twinlog.broker.sends.send_template import BORN, BORN_DIGITS, Template, learn
from twinlog.broker.topics.name_rules import topic_name_problem
from twinlog.store.log.append import Draft, PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.wire import properties as names
from twinlog.wire.codes import VERSION
from twinlog.wire.frame import PREFIX, encode_prefix
from twinlog.wire.java_json.fastjson import dumps
from twinlog.wire.java_text import tags_code
from twinlog.wire.message_id import offset_message_id
from twinlog.wire.numbers import Int, Long
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.sys_flag import TRANSACTION_MASK
from twinlog.wire.topic_bits import WRITE

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import MessageCounter
    from twinlog.net.connection import Buffer, Connection
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.log.append_run import Row

_unpack = PREFIX.unpack_from
_UNIQ_KEY = names.UNIQ_KEY + names.NAME_END
_UNIQ_KEY_BYTES = _UNIQ_KEY.encode()
_KEYS = names.KEYS + names.NAME_END
_ANSWER_END = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_PROPERTIES_MAX = 4096  # entries of a cache; one that is full is cleared
_QUEUES_MAX = 65536
_HEADERS_MAX = 65536
_MISSES_MAX = 8  # a producer whose properties change with every message gets no further templates
# Properties that make `send` do more than store the message as it is.
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


class _Fields(
    msgspec.Struct,
    gc=False,
    rename={
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queues": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "max_reconsume_times": "l",
        "batch": "m",
    },
):
    """The short send header. Members that are not used here are decoded too, so that `send` refuses invalid ones."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str
    reconsume_times: Int = 0
    max_reconsume_times: Int = 0
    batch: bool = False


class _Header(msgspec.Struct, gc=False):
    opaque: Int
    extFields: _Fields
    flag: Int = 0


_decode_header = msgspec.json.Decoder(_Header, strict=False).decode


class CheckedQueue:
    """A queue that may be sent to, and the parts of its answers that never change."""

    __slots__ = ("answer_middle", "answer_start", "counter")

    def __init__(self, answer_start: str, answer_middle: str, counter: MessageCounter) -> None:
        self.answer_start = answer_start  # the answer's members up to the physical offset in msgId
        self.answer_middle = answer_middle  # from there to the queue offset
        self.counter = counter


class StoredProperties(NamedTuple):
    """A set of properties as it is stored, without the value of the unique key."""

    encoded: bytes  # ends with the unique key's name
    tags_code: int
    keys: str


class KnownHeader:
    """The template of one producer's headers to one queue, and what their constant members mean."""

    __slots__ = (
        "after_length",
        "born_skip",
        "flag",
        "key_skip",
        "misses",
        "properties",
        "queue",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "template",
        "topic",
        "trailer_length",
    )

    def __init__(
        self, template: Template, fields: _Fields, queue: CheckedQueue, properties: StoredProperties, misses: int
    ) -> None:
        self.template = template
        self.born_skip = len(template.prefix)  # from the header's begin to the born timestamp
        self.key_skip = self.born_skip + BORN_DIGITS + len(template.before)  # and to the unique key
        self.after_length, self.trailer_length = len(template.after), len(template.trailer)
        self.queue = queue
        self.properties = properties
        self.topic = fields.topic
        self.queue_id = fields.queue_id
        self.flag = fields.flag
        self.sys_flag = fields.sys_flag
        self.reconsume_times = fields.reconsume_times
        self.misses = misses  # how many headers with this prefix did not fit


RecordPlace = tuple[int, int, int]
"""physical offset, queue offset, size"""

Unanswered = tuple[CheckedQueue, int | str, str, int]
"""A send that was decoded: its queue, opaque, unique key, end of its frame."""

_PREFIXES = [encode_prefix(length, 0) for length in range(1024)]


def _prefix(header_length: int) -> bytes:
    """The frame prefix of an answer, which has no body."""
    return _PREFIXES[header_length] if header_length < 1024 else encode_prefix(header_length, 0)


def _answer_start(status: PutStatus) -> str:
    return f'{{"code":{int(CODES[status])},"extFields":{{'


_OK_START = _answer_start(PutStatus.PUT_OK)


def _split_keys(text: str) -> tuple[str, str]:
    """(keys, the other properties): a user's keys often differ from message to message, like the unique key."""
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
        self._queues: dict[tuple[str, int], CheckedQueue] = {}
        self._headers: dict[bytes, KnownHeader] = {}  # by prefix
        self._properties: dict[str, StoredProperties | None] = {}  # by text without UNIQ_KEY and KEYS; None: unusual
        self._conf: BrokerConf | None = None
        self._topics_edition = -1
        self._allowed = self._waits = False
        # A plug-in around the store sees every message, one by one.
        self._append_run = ctx.store.append_run if type(ctx.store) is MessageStore else lambda host, rows: []

    def take(self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        """Handle frames from `at` on until one is unusual or incomplete; returns where that one begins."""
        ctx = self._ctx
        if ctx.conf is not self._conf or self._topics.edition != self._topics_edition:
            self._clear_caches()
        if not self._allowed or not ctx.guard.is_valid:
            return at
        rows: list[Row] = []
        sends: list[Unanswered] = []
        next_at = at
        while end - next_at > 20 and data[next_at + 8 : next_at + 20] == b'{"code":310,':
            length, header_length = _unpack(data, next_at)
            header_at = next_at + 8
            body_at, frame_end = header_at + header_length, next_at + 4 + length
            # A binary header has its type in the top byte, which makes the length larger than any frame.
            if not body_at < frame_end <= end:
                break
            known = self._headers.get(data[header_at : data.find(BORN, header_at, body_at) + 5])
            if known is not None:
                fitting_end = self._take_fitting(known, data, next_at, end, rows, sends)
                if fitting_end > next_at:
                    next_at = fitting_end
                    continue
                known.misses += 1
            decoded = self._decode(data[header_at:body_at], data[body_at:frame_end], frame_end, known)
            if decoded is None:
                break
            rows.append(decoded[0])
            sends.append(decoded[1])
            next_at = frame_end
        if not rows:
            return at
        started = perf_counter()
        places = self._append_run(connection.peer, rows)
        if len(places) < len(rows):
            places = self._append_rest(connection.peer, rows, places)
            if not places:
                return at
        if not self._waits:
            self._answer(sends, places, _OK_START, out)
            ctx.stats.put_times.took(perf_counter() - started, len(places))
        else:
            # Messages of one chunk wait together, for the last of them.
            last_offset, _, last_size = places[-1]
            write_answers = partial(self._write_answers, connection, sends, places, started)
            status = ctx.pending_sends.hold(last_offset + last_size, write_answers)
            if status is not None:
                self._answer(sends, places, _answer_start(status), out)
                ctx.stats.put_times.took(perf_counter() - started, len(places))
        return sends[len(places) - 1][3]

    @staticmethod
    def _take_fitting(
        known: KnownHeader, data: bytes, next_at: int, end: int, rows: list[Row], sends: list[Unanswered]
    ) -> int:
        """Read frames as long as their headers fit the template; returns where the first begins that does not."""
        prefix, before, key_length, after, trailer = known.template
        born_skip, key_skip = known.born_skip, known.key_skip
        after_length, trailer_length = known.after_length, known.trailer_length
        queue, (encoded, tags_code, keys) = known.queue, known.properties
        topic, queue_id, flag, sys_flag = known.topic, known.queue_id, known.flag, known.sys_flag
        reconsume_times = known.reconsume_times
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
            body, properties, found = data[body_at:frame_end], b"%b%b\x02" % (encoded, key), (tags_code, keys, uniq_key)
            rows.append((topic, queue_id, body, properties, int(born), flag, sys_flag, reconsume_times, found))
            sends.append((queue, opaque.decode(), uniq_key, frame_end))
            next_at = frame_end
        return next_at

    def _write_answers(
        self,
        connection: Connection,
        sends: list[Unanswered],
        places: list[RecordPlace],
        started: float,
        status: PutStatus,
    ) -> None:
        """Write answers that had to wait."""
        self._ctx.stats.put_times.took(perf_counter() - started, len(places))
        out: list[Buffer] = []
        self._answer(sends, places, _answer_start(status), out)
        connection.send(out)

    @staticmethod
    def _answer(sends: list[Unanswered], places: list[RecordPlace], start: str, out: list[Buffer]) -> None:
        """Answer the sends whose message was stored; `start` is the answer up to its members."""
        for (queue, opaque, uniq_key, _), (physical_offset, queue_offset, size) in zip(sends, places, strict=False):
            counter = queue.counter
            counter.count += 1
            counter.bytes += size
            answer = (
                f"{start}{queue.answer_start}{physical_offset:016X}{queue.answer_middle}{queue_offset}"
                f'","transactionId":"{uniq_key}"}},"flag":1,"language":"JAVA","opaque":{opaque}{_ANSWER_END}'
            ).encode()
            out.append(_prefix(len(answer)))
            out.append(answer)

    def _decode(
        self, header: bytes, body: bytes, frame_end: int, known: KnownHeader | None
    ) -> tuple[Row, Unanswered] | None:
        """A frame whose header fits no template; None when `send` must handle it."""
        try:
            command = _decode_header(header)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors too
            return None
        fields = command.extFields
        if command.flag or fields.batch or fields.sys_flag & TRANSACTION_MASK:
            return None
        queue = self._queues.get((fields.topic, fields.queue_id)) or self._check_queue(fields.topic, fields.queue_id)
        text = fields.properties
        key_at = text.find(_UNIQ_KEY)
        if queue is None or key_at < 0 or (key_at and text[key_at - 1] != "\x02"):
            return None
        key_end = text.find("\x02", key_at)
        key_end = len(text) if key_end < 0 else key_end
        uniq_key = text[key_at + 9 : key_end]
        if not uniq_key.isalnum() or not uniq_key.isascii():
            return None
        keys, rest = _split_keys(text[:key_at] + text[key_end + 1 :])
        stored = self._stored_properties(rest)
        if stored is None:
            return None
        if not keys and (known is None or known.misses < _MISSES_MAX):
            self._learn(header, fields, uniq_key, queue, stored, known)
        properties = b"%b%b\x02" % (stored.encoded, uniq_key.encode())
        if keys:
            properties += b"KEYS\x01%b\x02" % keys.encode()
        row = (
            fields.topic,
            fields.queue_id,
            body,
            properties,
            fields.born_timestamp,
            fields.flag,
            fields.sys_flag,
            fields.reconsume_times,
            (stored.tags_code, keys or stored.keys, uniq_key),
        )
        return row, (queue, command.opaque, uniq_key, frame_end)

    def _learn(
        self,
        header: bytes,
        fields: _Fields,
        uniq_key: str,
        queue: CheckedQueue,
        properties: StoredProperties,
        before: KnownHeader | None,
    ) -> None:
        """Cache the template of a header that was decoded; it replaces `before`, which has the same prefix."""
        template = learn(header, uniq_key)
        if template is None:
            return
        if len(self._headers) >= _HEADERS_MAX:
            self._headers.clear()
        misses = before.misses if before is not None else 0
        self._headers[template.prefix] = KnownHeader(template, fields, queue, properties, misses)

    def _append_rest(self, born_host: tuple[str, int], rows: list[Row], places: list[RecordPlace]) -> list[RecordPlace]:
        """`places` and those of the rows after them that could be stored.

        `append_run` stopped at a row that it does not take, most often because the next part of the segment begins.
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

    def _clear_caches(self) -> None:
        """Start with empty caches under the settings and topics of now."""
        ctx = self._ctx
        self._conf, self._topics_edition = ctx.conf, ctx.topics.edition
        self._queues.clear()
        self._headers.clear()
        self._properties.clear()
        settings = ctx.settings
        self._waits = ctx.pending_sends.anything_waits
        self._allowed = ctx.is_master and not settings.send_accepted_from_ms and bool(settings.permission & WRITE)

    def _check_queue(self, topic: str, queue_id: int) -> CheckedQueue | None:
        """The queue, if it is an ordinary one that may be sent to; None when `send` must decide."""
        ctx = self._ctx
        config = ctx.topics.get(topic)
        if config is None or topic_name_problem(topic) is not None or topic in SEND_FORBIDDEN_TOPICS:
            return None
        if topic.startswith(RETRY_PREFIX) or config.attributes or config.topic_filter_type != "SINGLE_TAG":
            return None
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return None
        if len(self._queues) >= _QUEUES_MAX:
            self._queues.clear()
        settings = ctx.settings
        fixed_fields = dumps(region_and_trace(settings))[1:-1].decode()
        host = offset_message_id(settings.broker_ip1, settings.listen_port, 0)[:-16]
        queue = CheckedQueue(
            f'{fixed_fields},"msgId":"{host}',
            f'","queueId":"{queue_id}","queueOffset":"',
            ctx.stats.puts(topic),
        )
        self._queues[topic, queue_id] = queue
        return queue

    def _stored_properties(self, text: str) -> StoredProperties | None:
        """These properties as they are stored; None when `send` must handle the message."""
        if text in self._properties:
            return self._properties[text]
        pairs = decode_properties(text)
        stored = None
        unusual = not pairs.keys().isdisjoint(_UNUSUAL) or any(name.startswith("TIMER_") for name in pairs)
        if self._waits and pairs.get(names.WAIT, "true").lower() != "true":
            unusual = True  # it does not wait with the others
        if not unusual:
            settings = self._ctx.settings
            encoded = encode_properties({**pairs, **region_and_trace(settings), names.CLUSTER: settings.cluster_name})
            tags, keys = pairs.get(names.TAGS, ""), pairs.get(names.KEYS, "")
            stored = StoredProperties(encoded + _UNIQ_KEY_BYTES, tags_code(tags), keys)
        if len(self._properties) >= _PROPERTIES_MAX:
            self._properties.clear()
        self._properties[text] = stored
        return stored
