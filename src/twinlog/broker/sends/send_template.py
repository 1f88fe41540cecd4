"""What the headers of one producer's sends to one queue have in common, byte for byte.

A Java producer writes the same header again and again; only three places differ, two of them of fixed width:

    {"code":310,"extFields":{"a":"PG",...,"g":" 1700000000000 ","h":"0","i":"UNIQ_KEY\\u0001 7F00...01 \\u0002TAGS...
    |----------------- prefix -----------------|    born     |----------- before --------|   key    |- after ---
    ...","j":"0",...},"flag":0,"language":"JAVA","opaque": 17 ,"serializeTypeCurrentRPC":"JSON","version":479}
    ---------------------- after ------------------------|    |------------------ trailer -------------------|

When all other bytes of a header equal those of one that was decoded and accepted, its meaning is the same, and it is
not decoded again: a fifth less time than decoding for queues in turn, a third for one queue. Headers whose properties
change with every message (KEYS) fit no template and are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.wire.frame import PREFIX

if TYPE_CHECKING:
    from twinlog.broker.sends.send_answers import Unanswered
    from twinlog.broker.sends.send_target import Target
    from twinlog.store.log.append_run import Row

BORN = b'"g":"'
BORN_DIGITS = 13  # milliseconds until the year 2286
_KEY = rb"UNIQ_KEY\u0001"
_OPAQUE = b'"opaque":'
_STARTS = (b'{"code":310,', b'{"code":320,')
_ONCE = (b'"code"', b'"g"', b'"opaque"', b"UNIQ_KEY")
_ESCAPES = (rb"\u0001", rb"\u0002")
_HEADERS_MAX = 16384  # cached; when there are more, all are dropped
_HEADER_BYTES_MAX = 1024  # longer ones are not cached
_MISSES_MAX = 8  # a producer whose properties change with every message gets no further templates


class Template(NamedTuple):
    prefix: bytes
    before: bytes
    key_length: int
    after: bytes
    trailer: bytes


def learn(header: bytes, uniq_key: str) -> Template | None:
    """The template of a JSON header that was decoded and carries this key; None when its members come in another order.

    Each member that differs must be there once, and no name may be written with escapes. With a second one, the value
    that was decoded might not be the one that is found here.
    """
    born_at = header.find(BORN) + len(BORN)
    key_at = header.find(_KEY) + len(_KEY)
    opaque_at = header.find(_OPAQUE) + len(_OPAQUE)
    opaque_end = header.find(b",", opaque_at)
    key_end = key_at + len(uniq_key)
    in_order = header.startswith(_STARTS) and len(BORN) <= born_at < key_at < opaque_at < opaque_end
    if not in_order or any(header.count(name) != 1 for name in _ONCE):
        return None
    if header[key_at:key_end] != uniq_key.encode() or header.count(b"\\") != sum(map(header.count, _ESCAPES)):
        return None
    born, opaque = header[born_at : born_at + BORN_DIGITS], header[opaque_at:opaque_end]
    if not born.isdigit() or header[born_at + BORN_DIGITS : born_at + BORN_DIGITS + 1] != b'"' or not opaque.isdigit():
        return None
    return Template(
        header[:born_at],
        header[born_at + BORN_DIGITS : key_at],
        len(uniq_key),
        header[key_end:opaque_at],
        header[opaque_end:],
    )


class KnownHeader:
    """A template, and the row that a header makes of which only the three places differ."""

    __slots__ = ("constants", "level", "misses")

    def __init__(self, template: Template, row: Row, target: Target, is_oneway: bool) -> None:
        prefix, before, key_length, after, trailer = template
        born_skip = len(prefix)  # from the header's begin to the born timestamp
        key_skip = born_skip + BORN_DIGITS + len(before)  # and to the unique key
        topic, queue_id, _, properties, _, flag, sys_flag, reconsume_times, tags_code, keys, uniq_key = row
        properties_start, _, properties_end = properties.partition((uniq_key or "").encode())
        self.constants = (
            prefix, before, key_length, after, trailer, born_skip, key_skip, len(after), len(trailer),
            properties_start, properties_end, topic, queue_id, flag, sys_flag, reconsume_times, tags_code, keys,
            target, is_oneway,
        )  # fmt: skip
        self.level = queue_id + 1 if topic is SCHEDULE_TOPIC else 0  # the delay level in which its messages wait
        self.misses = 0  # how many headers with this prefix did not fit


class KnownHeaders(dict[bytes, KnownHeader]):
    """Known headers by prefix, for the frames at the front of a chunk."""

    def take(self, data: bytes, at: int, end: int, rows: list[Row], sends: list[Unanswered], levels: set[int]) -> int:
        """Add the messages at the front of a chunk that fit templates; returns where the first begins that does not.

        `levels` gets the delay levels of those that wait. A loop for each message, longer than other functions: calls
        would cost as much as what they do.
        """
        find, get, unpack, startswith = data.find, self.get, PREFIX.unpack_from, data.startswith
        while end - at > 20:
            header_at = at + 8
            known = get(data[header_at : find(BORN, header_at, header_at + _HEADER_BYTES_MAX) + len(BORN)])
            if known is None or known.misses >= _MISSES_MAX:
                break
            (
                prefix, before, key_length, after, trailer, born_skip, key_skip, after_length, trailer_length,
                properties_start, properties_end, topic, queue_id, flag, sys_flag, reconsume_times, tags_code, keys,
                target, is_oneway,
            ) = known.constants  # fmt: skip
            level = known.level
            while True:  # one after the other, for the same queue
                header_at = at + 8
                length, header_length = unpack(data, at)
                body_at, frame_end = header_at + header_length, at + 4 + length
                born_at, key_at = header_at + born_skip, header_at + key_skip
                key_end, trailer_at = key_at + key_length, body_at - trailer_length
                opaque_at, born_end = key_end + after_length, born_at + BORN_DIGITS
                born, key, opaque = data[born_at:born_end], data[key_at:key_end], data[opaque_at:trailer_at]
                if not (
                    body_at < frame_end <= end
                    and startswith(before, born_end)
                    and startswith(after, key_end)
                    and startswith(trailer, trailer_at)
                    and born.isdigit()
                    and key.isalnum()
                    and opaque_at < trailer_at < opaque_at + 10  # at most nine digits
                    and opaque.isdigit()
                    and (opaque[0] != 0x30 or len(opaque) == 1)
                ):
                    # An incomplete frame, as most chunks end with one, says nothing about its header.
                    if length <= end - at - 4:
                        known.misses += 1
                    return at
                uniq_key, properties = key.decode(), properties_start + key + properties_end
                body = data[body_at:frame_end]
                row = (
                    topic, queue_id, body, properties, int(born), flag, sys_flag, reconsume_times, tags_code, keys,
                    uniq_key,
                )  # fmt: skip
                rows.append(row)
                sends.append((target, None if is_oneway else opaque.decode(), uniq_key, frame_end))
                at = frame_end
                if level:
                    levels.add(level)
                if end - at <= 20 or not startswith(prefix, at + 8):
                    break
        return at

    def learn(self, header: bytes, row: Row, target: Target, is_oneway: bool) -> None:
        """Cache the template of a header that was decoded; it replaces one with the same prefix."""
        before = self.get(header[: header.find(BORN) + len(BORN)])
        if before is not None and before.misses >= _MISSES_MAX:
            return
        uniq_key = row[10] or ""
        template = learn(header, uniq_key)
        # With the key in a second place, as half messages have it, the properties are not two constant parts.
        if template is None or len(header) > _HEADER_BYTES_MAX or row[3].count(uniq_key.encode()) != 1:
            return
        if len(self) >= _HEADERS_MAX:
            self.clear()
        self[template.prefix] = known = KnownHeader(template, row, target, is_oneway)
        known.misses = before.misses if before is not None else 0
