"""The properties of many records side by side, so that numpy finds a property of all of them at once.

    row i   | 02 | name 01 value 02 ... name 01 value 02 | bytes of the log that do not count |
            0    1                                  lengths[i]                           width

Every pair has a separator in front and behind. A record that does not fit (IPv6, a long topic, properties without a
closing separator or very long) has no place in the table: `fits` is False, and its row says nothing.
"""

from __future__ import annotations

import numpy as np

from twinlog.wire.record_layout import FIELD_AT, HEAD_BYTES, MAGIC_V1, PROPERTIES_LENGTH
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

WIDTH_MAX = 1024
ABSENT, UNKNOWN = -1, -2
_PAD_BYTES = 128  # behind the last row: whoever looks for a value may look so far
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_HEAD_TYPE = np.dtype(
    {
        "names": ["magic", "sys_flag", "body_length"],
        "formats": [">u4", ">i4", ">i4"],
        "offsets": [FIELD_AT[name] for name in ("magic", "sys_flag", "body_length")],
        "itemsize": HEAD_BYTES,
    }
)
VALUE_BYTES_MAX = _PAD_BYTES - 1
NAME_BYTES_MAX = _PAD_BYTES - 8  # with its two separators; longer ones are not looked for


class PropertyTable:
    """Made of records in one window of the log: where each begins in it, and its size."""

    __slots__ = ("cells", "fits", "lengths", "width")

    def __init__(self, window: memoryview, begins: np.ndarray, sizes: np.ndarray) -> None:
        heads = _pieces(window, HEAD_BYTES)[begins].view(_HEAD_TYPE)
        ends = begins + sizes
        topic_at = begins + HEAD_BYTES + heads["body_length"]
        self.fits = (heads["magic"] == MAGIC_V1) & (heads["sys_flag"] & _V6 == 0)
        self.fits &= (topic_at > begins) & (topic_at < ends)
        bytes_of = np.frombuffer(window, np.uint8)
        text_at = topic_at + bytes_of[np.where(self.fits, topic_at, 0)] + 1 + PROPERTIES_LENGTH.size
        lengths = ends - text_at + 1  # with the separator in front
        self.fits &= (lengths > 1) & (lengths <= WIDTH_MAX)
        self.width = width = int(np.maximum.reduce(lengths, initial=1, where=self.fits))
        self.fits &= text_at + (width - 1) <= len(window)
        self.lengths = np.where(self.fits, lengths, 1)
        count = len(begins)
        self.cells = np.zeros(count * width + _PAD_BYTES, np.uint8)
        table = self.cells[: count * width].reshape(count, width)
        rows = _pieces(window, width)[np.where(self.fits, text_at - 1, 0)]
        table[:] = rows.view(np.uint8).reshape(count, width)
        table[:, 0] = 2
        self.fits &= table[np.arange(count), self.lengths - 1] == 2

    def only(self, rows: np.ndarray) -> PropertyTable:
        """The table of these rows."""
        if len(rows) == len(self.lengths):
            return self
        table = object.__new__(PropertyTable)
        table.width, table.fits, table.lengths = self.width, self.fits[rows], self.lengths[rows]
        count = len(self.lengths) * self.width
        chosen = self.cells[:count].view(f"V{self.width}")[rows].view(np.uint8)
        table.cells = np.concatenate((chosen, self.cells[count:]))
        return table

    def values_at(self, pair_start: bytes) -> np.ndarray:
        """Where in `cells` the value after `pair_start` (02 name 01) begins, in each row.

        ABSENT if the row does not have it, UNKNOWN if it has it twice or without a value.
        """
        cells, width, size = self.cells, self.width, len(pair_start)
        count = len(self.lengths)
        if size > NAME_BYTES_MAX:
            return np.full(count, UNKNOWN, np.int64)
        end = -(-count * width // 8) * 8  # the bytes behind the last row are zeros, and not found
        found = cells[:end] == 2
        found &= cells[1 : 1 + end] == pair_start[1]
        found &= cells[size - 1 : size - 1 + end] == 1
        places = _true_places(found)
        for at in range(2, size - 1):
            places = places[cells[places + at] == pair_start[at]]
        rows = places // width
        whole = places - rows * width + size < self.lengths[rows]
        places, rows = places[whole] + size, rows[whole]
        values = np.full(count, ABSENT, np.int64)
        values[rows] = places
        if len(rows) > 1:
            values[rows[1:][rows[1:] == rows[:-1]]] = UNKNOWN
        values[rows[cells[places] == 2]] = UNKNOWN
        return values


def _true_places(flags: np.ndarray) -> np.ndarray:
    """Where a few of many flags are True; their number is a multiple of 8, so that most are passed by eights."""
    eights = flags.view(np.uint64)
    (groups,) = (eights != 0).nonzero()
    rows, columns = eights[groups].view(bool).reshape(-1, 8).nonzero()
    return groups[rows] * 8 + columns


def _pieces(window: memoryview, size: int) -> np.ndarray:
    """The `size` bytes at each place of the window."""
    return np.ndarray((len(window) - size + 1,), f"V{size}", buffer=window, strides=(1,))
