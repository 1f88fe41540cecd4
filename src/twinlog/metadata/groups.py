"""The subscription group table, its forbidden topics, and subscriptionGroup.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import encode_object
from twinlog.metadata.table import Table, named_rows
from twinlog.wire.bodies import DataVersion, SubscriptionGroupConfig

KIND = "groups"
FILE_NAME = "subscriptionGroup.json"
FORBID_READ = 1 << 2  # the mask is over permission bit numbers, and reading is number 2

Forbidden = dict[str, dict[str, int]]  # group -> topic -> mask


class GroupsFile(msgspec.Struct, rename="camel"):
    """subscriptionGroup.json, which is also the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    data_version: DataVersion | None = None
    subscription_group_table: dict[str, SubscriptionGroupConfig] | None = None
    forbidden_table: Forbidden | None = None


class GroupTable(Table[SubscriptionGroupConfig]):
    """Subscription groups by name, and which topics some of them may not read."""

    def __init__(self, file: FileWithBackup | None = None, now_ms: int = 0, epoch: str | None = None) -> None:
        super().__init__(file, now_ms, epoch)
        self._forbidden: Forbidden = {}
        self._forbidden_revision = 0

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        return self._forbidden

    def may_read(self, group: str, topic: str) -> bool:
        return not self._forbidden.get(group, {}).get(topic, 0) & FORBID_READ

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> bool:
        """Allow or forbid a topic to a group; False when nothing changes.

        Java: allowing one topic again removes every forbidden topic of the group, and saves nothing.
        """
        topics = dict(self._forbidden.get(group, {}))
        mask = topics.pop(topic, 0)
        wanted = mask & ~FORBID_READ if readable else mask | FORBID_READ
        if wanted == mask:
            return False
        if wanted:
            topics[topic] = wanted
        self._forbid({**self._forbidden, group: topics})
        self.advance(now_ms)
        return True

    def forbidden_since(self, epoch: str, revision: int) -> Forbidden | None:
        """The whole forbidden table if it changed after that revision, else None; it is small and changes rarely."""
        unchanged = epoch == self.epoch and self._forbidden_revision <= revision
        return None if unchanged else self._forbidden

    def adopt_forbidden(self, forbidden: Forbidden) -> bool:
        """Adopt the master's forbidden table; False when it is the same."""
        forbidden = {group: topics for group, topics in forbidden.items() if topics}
        if forbidden == self._forbidden:
            return False
        self._forbid(forbidden)
        self.changed()
        return True

    def decode_file(self, data: bytes) -> GroupsFile:
        return decode_json(data, GroupsFile)

    def restore(self, loaded: GroupsFile) -> None:
        self._forbid(loaded.forbidden_table or {})
        self.restore_rows(named_rows(loaded.subscription_group_table or {}, "group_name"), loaded.data_version)

    def adopt_loaded(self, loaded: GroupsFile) -> bool:
        if loaded.subscription_group_table is None or loaded.data_version is None:
            raise BrokenSnapshot(KIND, "subscriptionGroupTable or dataVersion is missing")
        differed = self.adopt(named_rows(loaded.subscription_group_table, "group_name"), loaded.data_version)
        if loaded.forbidden_table is not None:  # Java does not copy it: a promoted replica forbids nothing
            differed |= self.adopt_forbidden(loaded.forbidden_table)
        return differed

    def encode_file(self) -> Iterable[bytes]:
        return encode_object(
            [
                ("dataVersion", msgspec.json.encode(self.version)),
                ("forbiddenTable", msgspec.json.encode(self._forbidden)),
                ("subscriptionGroupTable", self.encode_rows()),
            ]
        )

    def _forbid(self, forbidden: Forbidden) -> None:
        self._forbidden = {group: topics for group, topics in forbidden.items() if topics}
        self._forbidden_revision = self.revisions.step()
