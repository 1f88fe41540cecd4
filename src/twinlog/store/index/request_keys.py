"""The index keys of dispatch requests: the unique key and each word of KEYS, hashed together.

A rolled-back message has no keys. Most batches have one unique key per record and nothing else, which is the fast case.
"""

from __future__ import annotations

import numpy as np

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.scan.key_hash import hash_keys, hash_prefix
from twinlog.wire.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK


def hash_requests(requests: list[DispatchRequest]) -> tuple[np.ndarray, np.ndarray | slice]:
    """The hash of every key of the records in order, and for each the place of its record."""
    keys = [request.uniq_key for request in requests]
    topics = [request.topic for request in requests]
    special = [request for request in requests if request.keys or request.sys_flag & TRANSACTION_MASK]
    if not special and None not in keys:
        return hash_keys(_prefixes(topics), keys), slice(None)  # pyright: ignore[reportArgumentType]
    texts: list[str] = []
    rows: list[int] = []
    for row, request in enumerate(requests):
        if request.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        uniq_key = keys[row]
        if uniq_key is not None:
            texts.append(uniq_key)
            rows.append(row)
        words = request.keys
        if words:
            for word in words.split(" ") if " " in words else (words,):
                if word:
                    texts.append(word)
                    rows.append(row)
    return hash_keys(_prefixes([topics[row] for row in rows]), texts), np.array(rows, np.int64)


def _prefixes(topics: list[str]) -> list[int] | int:
    first = topics[0] if topics else ""
    return hash_prefix(first) if topics.count(first) == len(topics) else [hash_prefix(topic) for topic in topics]
