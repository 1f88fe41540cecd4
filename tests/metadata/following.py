"""How a replica's table follows its master's: by a difference, or by the whole answer to Java's request."""

from twinlog.metadata.table import Changes
from twinlog.replication.metadata.table_pages import decode_answer


def changes_since(table, epoch: str, revision: int) -> Changes | None:
    """What a replica at this revision lacks; None when it must take the whole table."""
    keys = table.revisions.since(epoch, revision)
    return keys and Changes(table.version, {name: table.rows[name] for name in keys[0]}, keys[1])


def adopt_answer(table, kind, body: bytes) -> bool:
    return table.adopt_loaded(decode_answer(kind, table, body))
