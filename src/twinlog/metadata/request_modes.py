"""Whether a group pulls or pops a topic, as an operator set it: messageRequestMode.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import encode_object, encode_rows
from twinlog.metadata.table import Table
from twinlog.wire.bodies import MessageRequestMode, MessageRequestModeTable

KIND = "requestModes"
FILE_NAME = "messageRequestMode.json"

Modes = dict[str, MessageRequestMode]  # group -> mode


class RequestModeTable(Table[Modes]):
    """Topic -> group -> mode. Its JSON carries no version, so replicas compare the content."""

    def __init__(self, file: FileWithBackup | None = None, now_ms: int = 0, epoch: str | None = None) -> None:
        super().__init__(file, now_ms, epoch)

    def set_mode(self, mode: MessageRequestMode, now_ms: int) -> bool:
        return self.put(mode.topic, {**(self.get(mode.topic) or {}), mode.consumer_group: mode}, now_ms)

    def mode_of(self, topic: str, group: str) -> MessageRequestMode | None:
        return (self.get(topic) or {}).get(group)

    def adopt_modes(self, modes: Mapping[str, Modes]) -> bool:
        return self.adopt({topic: groups for topic, groups in modes.items() if groups}, self.version)

    def decode_file(self, data: bytes) -> MessageRequestModeTable:
        return decode_json(data, MessageRequestModeTable)

    def restore(self, loaded: MessageRequestModeTable) -> None:
        self.restore_rows(loaded.message_request_mode_map, None)

    def adopt_loaded(self, loaded: MessageRequestModeTable) -> bool:
        return self.adopt_modes(loaded.message_request_mode_map)

    def encode_file(self) -> Iterable[bytes]:
        """The file, which is also the answer to GET_ALL_MESSAGE_REQUEST_MODE."""
        return encode_object([("messageRequestModeMap", encode_rows(dict(self.rows)))])
