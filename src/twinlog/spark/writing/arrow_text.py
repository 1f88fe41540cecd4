"""Byte strings of many rows, built by Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are created at import: type checkers do not see them


def join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row joined, as bytes; null if a part is null."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def fixed_binary(rows: np.ndarray) -> pa.Array:
    """A column of byte strings of equal length, from a matrix with one row each."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
