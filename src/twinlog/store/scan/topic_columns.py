"""Topics of many records at once: each distinct name is decoded once, rows refer to it by number."""

from __future__ import annotations

import numpy as np

_WORD = 8


def number_topics(view: memoryview, at: np.ndarray, length: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """The distinct topics of the rows whose names begin at `at`, and for each row which one it has."""
    if not len(at):
        return [], np.zeros(0, np.int64)
    rows = _padded_rows(view, at, length)
    if (rows == rows[0]).all():  # most batches of a busy log
        return [_name(view, at, length, 0)], np.zeros(len(at), np.int64)
    weights = np.random.default_rng(rows.shape[1]).integers(1, 2**63, rows.shape[1], np.uint64) | np.uint64(1)
    hashes = (rows * weights).sum(axis=1, dtype=np.uint64) + length.astype(np.uint64)
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    numbers = numbers.reshape(-1)
    if not (rows == rows[first[numbers]]).all():  # two topics with one hash
        _, first, numbers = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        numbers = numbers.reshape(-1)
    return [_name(view, at, length, int(row)) for row in first], numbers


def _padded_rows(view: memoryview, at: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Each topic as a row of words, zeros behind its end."""
    width = -(-max(int(length.max()), 1) // _WORD) * _WORD
    starts = len(view) - width + 1
    inside = at < starts
    rows = np.zeros((len(at), width), np.uint8)
    if inside.any():
        windows = np.ndarray((starts,), f"V{width}", buffer=view, strides=(1,))
        rows[inside] = windows[at[inside]].view(np.uint8).reshape(-1, width)
    for row in np.flatnonzero(~inside):  # the last names before the end of the buffer
        name = view[int(at[row]) : int(at[row] + length[row])]
        rows[row, : len(name)] = np.frombuffer(name, np.uint8)
    if bool((length == length[0]).all()):
        rows[:, int(length[0]) :] = 0
    else:
        rows[np.arange(width) >= length[:, None]] = 0
    return rows.view(np.uint64)


def _name(view: memoryview, at: np.ndarray, length: np.ndarray, row: int) -> bytes:
    return bytes(view[int(at[row]) : int(at[row] + length[row])])
