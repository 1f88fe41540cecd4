"""The topic table and topics.json."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import encode_object
from twinlog.metadata.table import Table, named_rows
from twinlog.wire.bodies import DataVersion, TopicConfig

KIND = "topics"
FILE_NAME = "topics.json"


class TopicsFile(msgspec.Struct, rename="camel"):
    """topics.json, and what a master's answer to GET_ALL_TOPIC_CONFIG has in common with it."""

    data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] | None = None


class TopicTable(Table[TopicConfig]):
    """Topic configurations by name; values are never changed in place, use `msgspec.structs.replace`."""

    def __init__(self, file: FileWithBackup | None = None, now_ms: int = 0, epoch: str | None = None) -> None:
        super().__init__(file, now_ms, epoch)

    def is_order_topic(self, topic: str) -> bool:
        config = self.get(topic)
        return config is not None and config.order

    def decode_file(self, data: bytes) -> TopicsFile:
        return decode_json(data, TopicsFile)

    def restore(self, loaded: TopicsFile) -> None:
        self.restore_rows(named_rows(loaded.topic_config_table or {}, "topic_name"), loaded.data_version)

    def adopt_loaded(self, loaded: TopicsFile) -> bool:
        if loaded.topic_config_table is None or loaded.data_version is None:
            raise BrokenSnapshot(KIND, "topicConfigTable or dataVersion is missing")
        return self.adopt(named_rows(loaded.topic_config_table, "topic_name"), loaded.data_version)

    def encode_file(self) -> Iterable[bytes]:
        return encode_object(
            [("dataVersion", msgspec.json.encode(self.version)), ("topicConfigTable", self.encode_rows())]
        )
