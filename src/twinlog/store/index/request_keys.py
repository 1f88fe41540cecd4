"""The index keys of dispatch requests: the unique key and each word of KEYS, hashed together.

A rolled-back message has no keys. Unique keys are hashed as one matrix, since nearly all have the same length, and the
words of KEYS apart from them.
"""

from __future__ import annotations

import numpy as np

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.scan.column_batch import property_columns
from twinlog.store.scan.key_hash import hash_keys, hash_prefix
from twinlog.wire.values.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK


def hash_requests(requests: list[DispatchRequest]) -> tuple[np.ndarray, np.ndarray | slice]:
    """The hash of every key of the records in order, and for each the place of its record.

    Of one record, the unique key comes first.
    """
    uniq_keys = [request.uniq_key for request in requests]
    words = [request.keys for request in requests]
    topics = [request.topic for request in requests]
    flags = [request.sys_flag for request in requests]
    if any(flags):
        for row, flag in enumerate(flags):
            if flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                uniq_keys[row], words[row] = None, ""
    rows: list[int] | None = None
    if None in uniq_keys:
        rows = [row for row, key in enumerate(uniq_keys) if key is not None]
    hashes = _hash(topics, uniq_keys, rows)
    if not any(words):
        return hashes, slice(None) if rows is None else np.array(rows, np.int64)
    texts, text_rows = _split_words(words)
    all_rows = np.array([*(range(len(requests)) if rows is None else rows), *text_rows], np.int64)
    order = np.argsort(all_rows, kind="stable")
    all_hashes = np.concatenate((hashes, hash_keys(_prefixes([topics[row] for row in text_rows]), texts)))
    return all_hashes[order], all_rows[order]


def hash_batches(batches: list[BatchRequests]) -> tuple[np.ndarray, np.ndarray] | None:
    """The same for the records of batches, read as columns; None if their properties differ too much for that."""
    texts = [text for batch in batches for text in batch.properties]
    lengths = np.array(list(map(len, texts)), np.int64)
    prefixes = np.array([hash_prefix(batch.topic) for batch in batches], np.uint32)
    prefixes = np.repeat(prefixes, list(map(len, batches)))
    columns = property_columns(b"".join(texts), np.cumsum(lengths) - lengths, lengths, prefixes)
    return None if columns is None else (columns.key_hash, columns.key_row)


def _hash(topics: list[str], uniq_keys: list[str | None], rows: list[int] | None) -> np.ndarray:
    if rows is not None:
        topics, uniq_keys = [topics[row] for row in rows], [uniq_keys[row] for row in rows]
    return hash_keys(_prefixes(topics), uniq_keys)  # pyright: ignore[reportArgumentType]


def _split_words(words: list[str]) -> tuple[list[str], list[int]]:
    """All words, and the row that each comes from."""
    if " " not in "".join(words):
        rows = [row for row, text in enumerate(words) if text]
        return [words[row] for row in rows], rows
    pairs = [(word, row) for row, text in enumerate(words) if text for word in text.split(" ") if word]
    return [word for word, _ in pairs], [row for _, row in pairs]


def _prefixes(topics: list[str]) -> list[int] | int:
    first = topics[0] if topics else ""
    return hash_prefix(first) if topics.count(first) == len(topics) else [hash_prefix(topic) for topic in topics]
