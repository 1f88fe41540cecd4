"""Properties of many records at once: as a map column, and single properties as columns.

What it trades: `wire.properties.decode_properties` is the definition. Here the separators of all records are found
with one pass of numpy, and names and values become Arrow arrays over the same bytes. A property test holds both equal.

    name 01 value 02 name 01 value 02 | name 01 value ...    rows follow each other without a byte between them
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NAME_END, _PAIR_END = 1, 2
_FEW_NAMES = 63


class PropertyColumns:
    """The pairs of a column of property texts, in row order."""

    def __init__(self, texts: pa.Array) -> None:
        offsets, data = _text_buffers(_valid_utf8(texts))
        self._data = data
        self.rows = len(texts)
        text = np.frombuffer(data, np.uint8, int(offsets[-1]))
        if not self._split_regular(offsets, text):
            self._split(offsets, text)
        self._name_column = self._strings(self._name_at, self._name_end)
        self._names = self._name_column.dictionary_encode()
        self._codes = self._names.indices.to_numpy()
        if self._has_repeated():
            self._drop_repeated()

    def column(self, name: str) -> pa.Array:
        """The values of one property; null where a record does not have it."""
        code = self._names.dictionary.index(name).as_py()
        chosen = np.flatnonzero(self._codes == code) if code >= 0 else np.zeros(0, np.int64)
        values = self._strings(self._value_at[chosen], self._value_end[chosen])
        if len(chosen) == self.rows:
            return values
        place = np.full(self.rows, -1, np.int64)
        place[self._row[chosen]] = np.arange(len(chosen))
        return values.take(pa.array(place, mask=place < 0))

    def map_column(self) -> pa.Array:
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(np.bincount(self._row, minlength=self.rows), out=offsets[1:])
        values = self._strings(self._value_at, self._value_end)
        return pa.MapArray.from_arrays(pa.array(offsets), self._name_column, values)

    def _split_regular(self, offsets: np.ndarray, text: np.ndarray) -> bool:
        """Find the pairs if each has a name, a value and both separators, as current clients write them."""
        marks = np.flatnonzero(text <= _PAIR_END)
        kinds = text[marks]
        name_end, pair_end = marks[0::2], marks[1::2]
        if len(name_end) != len(pair_end) or (kinds[0::2] != _NAME_END).any() or (kinds[1::2] != _PAIR_END).any():
            return False
        begin = np.zeros(len(pair_end), np.int64)
        begin[1:] = pair_end[:-1] + 1
        filled = offsets[1:][offsets[1:] > offsets[:-1]]
        if (name_end <= begin).any() or (name_end + 1 >= pair_end).any() or (text[filled - 1] != _PAIR_END).any():
            return False
        before = np.searchsorted(pair_end, offsets)
        self._row = np.repeat(np.arange(self.rows), np.diff(before))
        self._name_at, self._name_end = begin, name_end
        self._value_at, self._value_end = name_end + 1, pair_end
        return True

    def _split(self, offsets: np.ndarray, text: np.ndarray) -> None:
        """Find the pairs. Java: a pair without a name or without a value is ignored."""
        pair_ends = np.flatnonzero(text == _PAIR_END)
        name_ends = np.flatnonzero(text == _NAME_END)
        begins = np.concatenate((offsets[:-1], pair_ends + 1))
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        # The last piece of a row ends with the row. The piece after a closing separator is empty and is dropped below.
        row = np.searchsorted(offsets, begins, side="right") - 1
        row = np.minimum(row, self.rows - 1)
        ends = np.empty(len(begins), np.int64)
        ends[:-1] = begins[1:]
        if len(ends):
            ends[-1] = len(text)
        closed = np.zeros(len(text) + 1, bool)
        closed[pair_ends] = True
        inside = ends > begins
        ends -= inside & closed[np.maximum(ends - 1, 0)]
        first = np.searchsorted(name_ends, begins)
        name_end = np.full(len(begins), -1, np.int64)
        known = first < len(name_ends)
        name_end[known] = name_ends[first[known]]
        good = (name_end > begins) & (name_end + 1 < ends)
        self._row = row[good]
        self._name_at, self._name_end = begins[good], name_end[good]
        self._value_at, self._value_end = name_end[good] + 1, ends[good]

    def _drop_repeated(self) -> None:
        """If a row has a name twice, the last pair counts."""
        keys = self._row.astype(np.int64) * len(self._names.dictionary) + self._codes
        _, from_end = np.unique(keys[::-1], return_index=True)
        keep = np.sort(len(keys) - 1 - from_end)
        self._row, self._codes = self._row[keep], self._codes[keep]
        self._name_at, self._name_end = self._name_at[keep], self._name_end[keep]
        self._value_at, self._value_end = self._value_at[keep], self._value_end[keep]
        self._name_column = self._name_column.take(pa.array(keep))

    def _has_repeated(self) -> bool:
        """Whether a row has a name twice. Rare, so the usual forms are checked first, without sorting."""
        if not len(self._row):
            return False
        names = len(self._names.dictionary)
        if len(self._codes) == self.rows * names and (self._codes.reshape(-1, names) == self._codes[:names]).all():
            return len(np.unique(self._codes[:names])) < names  # all rows have the same names in the same order
        if names > _FEW_NAMES:
            keys = self._row.astype(np.int64) * names + self._codes
            return len(np.unique(keys)) < len(keys)
        bits = np.left_shift(np.int64(1), self._codes.astype(np.int64))
        starts = np.flatnonzero(np.diff(self._row, prepend=-1))
        return bool((np.add.reduceat(bits, starts) != np.bitwise_or.reduceat(bits, starts)).any())

    def _strings(self, begin: np.ndarray, end: np.ndarray) -> pa.Array:
        return spans(self._data, begin, end, pa.string())


def spans(data: pa.Buffer, begin: np.ndarray, end: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The pieces of `data` from `begin` to `end`, which ascend, copied into an array."""
    bounds = np.empty(2 * len(begin) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2] = begin, end
    bounds[-1] = bounds[-2] if len(begin) else 0
    pieces = pa.Array.from_buffers(kind, 2 * len(begin), [None, pa.py_buffer(bounds), data])
    return pieces.take(pa.array(np.arange(0, 2 * len(begin), 2, dtype=np.int32)))


def _valid_utf8(texts: pa.Array) -> pa.Array:
    """The texts as strings; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())


def _text_buffers(texts: pa.Array) -> tuple[np.ndarray, pa.Buffer]:
    if texts.offset:
        texts = pc.take(texts, pa.array(np.arange(len(texts))))
    _, offsets, data = texts.buffers()
    found = np.frombuffer(offsets, np.int32, len(texts) + 1).astype(np.int64)
    return found, data if data is not None else pa.py_buffer(b"")
