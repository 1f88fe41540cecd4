"""Binary headers of sends, decoded to the flat form of `send_headers`.

A fast path beside `command.decode_header`. The headers of one producer to one queue differ in the born timestamp, the
properties and the opaque. The other bytes, in three pieces around the first two, are looked up as a whole: a piece that
once was whole fields always is. Headers that are not cached, as when a client writes fields in a new order each time,
are walked field by field. None is returned for a header that is not a send's, or needs the plain decoder. A property
test holds both equal.
"""

import struct

from twinlog.wire.command import BINARY_HEAD, FIELDS_MAX
from twinlog.wire.numbers import LONG_MAX, LONG_MIN
from twinlog.wire.sends.send_headers import LONG_NAMES, SHORT_NAMES, Constants, FlatSend

_HEAD = struct.Struct(BINARY_HEAD.format + "i")  # of a header without a remark, up to its fields
_FIELDS_AT = _HEAD.size
_NAME_LENGTH = struct.Struct(">h")
_VALUE_LENGTH = struct.Struct(">i")
_BORN_DIGITS = 13  # milliseconds until the year 2286
_LAYOUTS_MAX = 4096
_LAYOUT_BYTES_MAX = 1024
_Layout = tuple[bytes, bytes, bytes]


class _Names:
    """The names of one kind of header, as its fields have them."""

    def __init__(self, names: dict[str, str]) -> None:
        encoded = {name: wire_name.encode() for name, wire_name in names.items()}
        self.born, self.properties = encoded.pop("born_timestamp"), encoded.pop("properties")
        self.reconsume_times, self.batch = encoded.pop("reconsume_times"), encoded.pop("batch")
        self.required = list(encoded.values())  # in the order of the header class
        self.born_start = _NAME_LENGTH.pack(len(self.born)) + self.born + _VALUE_LENGTH.pack(_BORN_DIGITS)
        self.properties_start = _NAME_LENGTH.pack(len(self.properties)) + self.properties


_LONG, _SHORT = _Names(LONG_NAMES), _Names(SHORT_NAMES)
_NAMES = {10: _LONG, 310: _SHORT, 320: _SHORT}


class BinarySends:
    """Decodes binary headers; caches what constant pieces mean."""

    def __init__(self) -> None:
        self._layouts: dict[_Layout, Constants] = {}
        self._hits = 0

    def decode(self, header: bytes) -> FlatSend | None:
        """The send that a binary header describes; None when it is another request, or needs the plain decoder."""
        try:
            code, _, _, opaque, flag, remark_length, length = _HEAD.unpack_from(header)
            names = _NAMES.get(code)
            if names is None or remark_length or length != len(header) - _FIELDS_AT:
                return None
            born_at = header.find(names.born_start) + len(names.born_start)
            born_end = born_at + _BORN_DIGITS
            length_at = header.find(names.properties_start) + len(names.properties_start)
            begin = length_at + _VALUE_LENGTH.size
            end = begin + int.from_bytes(header[length_at:begin], "big")
            if born_end <= length_at:
                layout = header[_FIELDS_AT:born_at], header[born_end:length_at], header[end:]
            else:
                layout = header[_FIELDS_AT:length_at], header[end:born_at], header[born_end:]
            constants = self._layouts.get(layout)
            if constants is None or end > len(header):
                return self._walk(header, names, opaque, flag, layout)
            self._hits += 1
            return opaque, flag, constants, int(header[born_at:born_end]), header[begin:end].decode()
        except (ValueError, struct.error):
            return None

    def _walk(self, header: bytes, names: _Names, opaque: int, flag: int, layout: _Layout) -> FlatSend | None:
        """The same without the cache."""
        places = _places(header)
        texts = {name: header[begin:end].decode() for name, (begin, end) in places.items()}
        try:
            _, topic, _, queues, queue_id, sys_flag, message_flag = [texts[name] for name in names.required]
            born = int(texts[names.born])
        except KeyError:  # a member is missing
            return None
        if not LONG_MIN <= born <= LONG_MAX:
            return None
        reconsume_times, batch = texts.get(names.reconsume_times, "0"), texts.get(names.batch, "false")
        constants = topic, queues, queue_id, sys_flag, message_flag, reconsume_times, batch
        if _is_cut_at(layout, header, places, names) and sum(map(len, layout)) <= _LAYOUT_BYTES_MAX:
            self._learn(layout, constants)
        return opaque, flag, constants, born, texts.get(names.properties, "")

    def _learn(self, layout: _Layout, constants: Constants) -> None:
        if len(self._layouts) >= _LAYOUTS_MAX:
            if self._hits < _LAYOUTS_MAX:  # the order of fields changes with every message: a cache is in vain
                return
            self._layouts.clear()
            self._hits = 0
        self._layouts[layout] = constants


def _places(header: bytes) -> dict[bytes, tuple[int, int]]:
    """Where the value of each field begins and ends; empty ones do not count."""
    places: dict[bytes, tuple[int, int]] = {}
    name_length_at, value_length_at = _NAME_LENGTH.unpack_from, _VALUE_LENGTH.unpack_from
    at, end, count, filled = _FIELDS_AT, len(header), 0, 0
    while at < end:
        (name_length,) = name_length_at(header, at)
        value_at = at + 6 + name_length
        (value_length,) = value_length_at(header, value_at - 4)
        value_end = value_at + value_length
        count += 1
        if name_length < 0 or value_length < 0 or value_end > end or count > FIELDS_MAX:
            raise ValueError("not a header: the plain decoder has the words for it")
        if name_length and value_length:
            places[header[at + 2 : value_at - 4]] = value_at, value_end
            filled += 1
        at = value_end
    if len(places) < filled:
        raise ValueError("a name comes twice, and the text of its first value is not checked here")
    b"\0".join(places).decode()  # raises a ValueError too
    return places


def _is_cut_at(layout: _Layout, header: bytes, places: dict[bytes, tuple[int, int]], names: _Names) -> bool:
    """Whether the pieces are what remains of the header without the values of its born timestamp and properties."""
    if names.properties not in places:
        return False
    (begin, end), (next_begin, next_end) = sorted((places[names.born], places[names.properties]))
    length_bytes = _VALUE_LENGTH.size
    if places[names.born][0] == begin:
        cut = header[_FIELDS_AT:begin], header[end : next_begin - length_bytes], header[next_end:]
    else:
        cut = header[_FIELDS_AT : begin - length_bytes], header[end:next_begin], header[next_end:]
    return cut == layout and places[names.born][1] - places[names.born][0] == _BORN_DIGITS
