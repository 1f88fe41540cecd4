"""How far each consumer group has consumed each queue: consumerOffset.json, pending resets, pull positions.

A row is keyed `topic@group` and maps queue ids to offsets; broadcast positions are `topic@group@broadcast`.

On a replica the rows follow the master, except for offsets that consumers committed here and the master does not have
yet. Such an offset stays until the master reaches it, or until the master's own offset goes down, which is an
operator's reset. `ahead` returns these offsets; they are in the file, and are sent to a master that returns. After the
master restarts, a lower offset is not a reset: a master that was killed returns with what it had saved last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import SteppedTable, encode_object, encode_rows
from twinlog.metadata.table import Changes
from twinlog.wire.bodies import DataVersion
from twinlog.wire.numbers import Int, Long

KIND = "offsets"
FILE_NAME = "consumerOffset.json"
VERSION_STEP = 500  # commits per data version, as Java's consumerOffsetUpdateVersionStep

Offsets = dict[Int, Long]  # queue id -> offset
_NO_OFFSETS: Mapping[int, int] = MappingProxyType({})


class OffsetsFile(msgspec.Struct, rename="camel"):
    """consumerOffset.json; Java does not have the last two members and ignores them."""

    data_version: DataVersion | None = None
    offset_table: dict[str, Offsets] | None = None
    ahead_of_master: dict[str, dict[Int, tuple[Long, Long]]] | None = None
    master_epoch: str = msgspec.field(name="masterLife", default="")


def row_key(group: str, topic: str) -> str:
    return f"{topic}@{group}"


class OffsetTable(SteppedTable):
    """Committed offsets by topic, group and queue."""

    def __init__(
        self,
        file: FileWithBackup | None = None,
        now_ms: int = 0,
        epoch: str | None = None,
        *,
        version_step: int = VERSION_STEP,
    ) -> None:
        super().__init__(file, now_ms, epoch, version_step)
        self.follows_master = False  # True on a replica, which keeps its own commits in `ahead`
        self._rows: dict[str, Offsets] = {}
        self._resets: dict[str, Offsets] = {}
        self._pulled: dict[str, Offsets] = {}
        self._ahead: dict[str, dict[int, tuple[int, int]]] = {}  # queue -> (committed here, the master's offset then)
        self._master_epoch = ""  # of the Twinlog master that `_ahead` was compared with last

    # -- reading -----------------------------------------------------------------------------------

    @property
    def rows(self) -> Mapping[str, Mapping[int, int]]:
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset to continue from: a pending reset before the committed one."""
        key = f"{topic}@{group}"
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        return self._rows.get(key, _NO_OFFSETS).get(queue_id)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        return self._rows.get(f"{topic}@{group}", _NO_OFFSETS)

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group last pulled to, which may be further than it committed."""
        pulled = self._pulled.get(f"{topic}@{group}", _NO_OFFSETS).get(queue_id)
        return pulled if pulled is not None else self.get(group, topic, queue_id)

    def topics_of(self, group: str) -> set[str]:
        return {key.partition("@")[0] for key in _keys_of_group(group, self._rows)}

    def topics_by_group(self) -> dict[str, list[str]]:
        """The topics of every group, in one walk over the table."""
        return _topics_by_group(self._rows)

    def groups_of(self, topic: str) -> set[str]:
        return {key.partition("@")[2] for key in _keys_of_topic(topic, self._rows)}

    # -- committing --------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Store that the group has consumed the queue up to `offset`; a lower offset is allowed."""
        self.commit_in(row_key(group, topic), queue_id, offset, now_ms)

    def commit_in(self, key: str, queue_id: int, offset: int, now_ms: int) -> None:
        """`commit` to the row of this key, as are the other methods with `_in`: for those who keep their key."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = {}
        before = row.get(queue_id)
        if before == offset:
            return
        row[queue_id] = offset
        if self.follows_master:
            ahead = self._ahead.setdefault(key, {})
            base = ahead[queue_id][1] if queue_id in ahead else (-1 if before is None else before)
            ahead[queue_id] = (offset, base)
        self._changed_row(key, now_ms)

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.commit_pull_in(row_key(group, topic), queue_id, offset)

    def commit_pull_in(self, key: str, queue_id: int, offset: int) -> None:
        pulled = self._pulled.get(key)
        if pulled is None:
            pulled = self._pulled[key] = {}
        pulled[queue_id] = offset

    def raise_to(self, rows: Mapping[str, Mapping[int, int]], now_ms: int) -> int:
        """Adopt offsets that are higher than ours, as a returning master does; how many there were."""
        raised = 0
        for key, theirs in rows.items():
            row = self._rows.get(key, {})
            further = {q: offset for q, offset in theirs.items() if offset > row.get(q, -1)}
            if further:
                self._rows[key] = {**row, **further}
                self._changed_row(key, now_ms)
                raised += len(further)
        return raised

    def cap(self, end: Callable[[str, int], int | None], now_ms: int) -> int:
        """Set back offsets behind `end(topic, queue_id)`, after the log was cut; how many there were. None: no end."""
        capped = 0
        for key, row in list(self._rows.items()):
            topic = key.partition("@")[0]
            ends = {queue: end(topic, queue) for queue in row}
            behind = {queue: last for queue, last in ends.items() if last is not None and row[queue] > last}
            if behind:
                self._rows[key] = {**row, **behind}
                self._ahead.pop(key, None)
                self._changed_row(key, now_ms)
                capped += len(behind)
        return capped

    def clone(self, source: str, target: str, topic: str, now_ms: int) -> None:
        """Give group `target` the offsets of group `source` in `topic`."""
        row = self._rows.get(f"{topic}@{source}")
        if row is not None:
            self._rows[f"{topic}@{target}"] = dict(row)
            self._changed_row(f"{topic}@{target}", now_ms)

    # -- resets ------------------------------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Set a group's offset by an operator's command: it takes effect at the next pull; commits before it do not."""
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset, now_ms)
        self._ahead.get(f"{topic}@{group}", {}).pop(queue_id, None)

    def reset_pending(self, group: str, topic: str, queue_id: int) -> bool:
        return self.reset_pending_in(row_key(group, topic), queue_id)

    def reset_pending_in(self, key: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get(key, _NO_OFFSETS)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove and return the pending reset of a queue, for the pull that applies it."""
        key = f"{topic}@{group}"
        resets = self._resets.get(key)
        offset = resets.pop(queue_id, None) if resets else None
        if resets is not None and not resets:
            del self._resets[key]
        return offset

    # -- removing ----------------------------------------------------------------------------------

    def remove_topic(self, topic: str, now_ms: int) -> bool:
        return self._remove(_keys_of_topic(topic, self._keys_in_memory()), now_ms)

    def remove_group(self, group: str, now_ms: int) -> bool:
        return self._remove(_keys_of_group(group, self._keys_in_memory()), now_ms)

    def remove(self, group: str, topic: str, now_ms: int) -> bool:
        return self._remove([f"{topic}@{group}"], now_ms)

    # -- following a master ------------------------------------------------------------------------

    def ahead(self) -> dict[str, Offsets]:
        """Offsets that were committed here and that the master does not have yet."""
        return {key: {queue: value for queue, (value, _) in row.items()} for key, row in self._ahead.items() if row}

    def follow(self) -> None:
        """Become a replica: from now on a commit here is kept in `ahead` until the master has it."""
        self.follows_master = True

    def lead(self) -> None:
        """Become the master: from now on the offsets committed here are the ones that count."""
        self.follows_master = False
        if self._ahead:
            self._ahead = {}
            self.changed()

    def adopt(
        self, rows: Mapping[str, Mapping[int, int]], version: DataVersion | None, *, master_epoch: str = ""
    ) -> bool:
        """Follow the master's whole table; False when nothing changed here.

        Rows that the master no longer has are removed, unless a consumer committed to them here. 4.x sends no version.
        `master_epoch` changes when a Twinlog master restarts.
        """
        old, restarted = self._rows, master_epoch != self._master_epoch
        self._master_epoch = master_epoch
        merged = {key: self._merge(key, theirs, restarted=restarted) for key, theirs in rows.items()}
        for key, kept in self.ahead().items():
            merged.setdefault(key, kept)
        fresh = [key for key, row in merged.items() if old.get(key) != row]
        gone = [key for key in old if key not in merged]
        self._rows = merged
        return self._followed(fresh, gone, version)

    def apply(self, changes: Changes[Offsets]) -> bool:
        """Apply a difference that the master sent; False when nothing changed here."""
        fresh: list[str] = []
        for key, theirs in changes.changed.items():
            merged = self._merge(key, theirs)
            if self._rows.get(key) != merged:
                self._rows[key] = merged
                fresh.append(key)
        gone = [key for key in changes.removed if key in self._rows and not self._ahead.get(key)]
        for key in gone:
            del self._rows[key]
        return self._followed(fresh, gone, changes.version)

    # -- the file ----------------------------------------------------------------------------------

    def decode_file(self, data: bytes) -> OffsetsFile:
        return decode_json(data, OffsetsFile)

    def restore(self, loaded: OffsetsFile) -> None:
        self._rows = loaded.offset_table or {}
        self._ahead, self._master_epoch = loaded.ahead_of_master or {}, loaded.master_epoch
        if loaded.data_version is not None:
            self.version = loaded.data_version
        self.revisions.touch_all(self._rows)

    def adopt_loaded(self, loaded: OffsetsFile) -> bool:
        if loaded.offset_table is None:
            raise BrokenSnapshot(KIND, "offsetTable is missing")
        return self.adopt(loaded.offset_table, loaded.data_version)

    def encode_file(self) -> Iterable[bytes]:
        ahead = {key: row for key, row in self._ahead.items() if row}
        also = [("aheadOfMaster", msgspec.json.encode(ahead)), ("masterLife", msgspec.json.encode(self._master_epoch))]
        return self.encode(also if ahead else [])

    def encode(self, also: list[tuple[str, bytes]] | None = None) -> Iterable[bytes]:
        """The table as Java's JSON: the file, and the answer to GET_ALL_CONSUMER_OFFSET.

        Java also writes `pullOffsetTable`. It is left out here: a 5.5.0 replica cannot read its unquoted keys.
        """
        rows = dict(self._rows)
        return encode_object(
            [
                ("dataVersion", msgspec.json.encode(self.version)),
                ("groupTopicMap", _encode_topics_by_group(rows)),
                ("offsetTable", encode_rows(rows)),
                *(also or []),
            ]
        )

    # -- inside ------------------------------------------------------------------------------------

    def _remove(self, keys: list[str], now_ms: int) -> bool:
        gone = [key for key in keys if self._rows.pop(key, None) is not None]
        for key in keys:
            self._resets.pop(key, None)
            self._pulled.pop(key, None)
            self._ahead.pop(key, None)
        for key in gone:
            self.revisions.remove(key)
        if gone:
            self.version = self.version.next(now_ms)
            self.changed()
        return bool(gone)

    def _merge(self, key: str, theirs: Mapping[int, int], *, restarted: bool = False) -> Offsets:
        """The master's row with our own later commits; forgets commits that the master has reached or reset."""
        merged = dict(theirs)
        ahead = self._ahead.get(key)
        for queue, (value, base) in list(ahead.items()) if ahead else ():
            master = theirs.get(queue, -1)
            if master >= value or (master < base and not restarted):
                del self._ahead[key][queue]
            else:
                merged[queue] = value
                self._ahead[key][queue] = (value, master)
        return merged

    def _followed(self, fresh: list[str], gone: list[str], version: DataVersion | None) -> bool:
        self._ahead = {key: row for key, row in self._ahead.items() if row}
        new_version = version is not None and version != self.version
        if not fresh and not gone and not new_version:
            return False
        if version is not None:
            self.version = version
        self.revisions.touch_all(fresh)
        for key in gone:
            self.revisions.remove(key)
        self.changed()
        return True

    def _keys_in_memory(self) -> set[str]:
        """Every key of a committed offset, a pull position or a pending reset."""
        return self._rows.keys() | self._pulled.keys() | self._resets.keys()


def _keys_of_topic(topic: str, keys: Iterable[str]) -> list[str]:
    prefix = f"{topic}@"
    return [key for key in keys if key.startswith(prefix) and key.count("@") == 1]


def _keys_of_group(group: str, keys: Iterable[str]) -> list[str]:
    suffix = f"@{group}"
    return [key for key in keys if key.endswith(suffix) and key.count("@") == 1]


def _encode_topics_by_group(rows: Iterable[str]) -> Iterator[bytes]:
    """A member that Java derives from the keys and writes too, but does not read."""
    yield from encode_rows(_topics_by_group(rows))


def _topics_by_group(rows: Iterable[str]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for key in rows:
        topic, _, group = key.partition("@")
        if group and "@" not in group:
            topics.setdefault(group, []).append(topic)
    return topics
