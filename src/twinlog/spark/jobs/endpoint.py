"""An endpoint of a comparison: a store directory or a live broker; and requests to a live broker.

Workers ask brokers directly, in blocking calls with a time limit. If a connection is lost, the request is sent again a
few times. A refusal is an error that names the broker.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from twinlog.client.admin.servers import read_lines
from twinlog.client.errors import BrokerRefused
from twinlog.net.errors import NetError
from twinlog.replication.digests import ByteRange
from twinlog.replication.segment_bytes import shown_segment_bytes
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.paths import local_path, local_text
from twinlog.spark.remoting import Response, connection_to, forget_connection
from twinlog.wire.bodies import KVTable, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_TIMEOUT_MS = 60_000  # reading a range of a log that is not cached takes a while
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A store directory or the address of a broker; `store` is None for a broker."""

    text: str
    store: Path | None = None
    commit_log_dirs: tuple[Path, ...] = ()
    options: ClusterOptions = field(default_factory=lambda: ClusterOptions(name_servers=()), repr=False)

    @property
    def broker(self) -> LiveBroker:
        assert self.store is None, self.text
        return LiveBroker(self.text, self.options)

    def __str__(self) -> str:
        return self.text


def parse_endpoint(text: str, options: ClusterOptions | None = None) -> Endpoint:
    """A directory, or host:port; an existing directory with such a name is a directory. Its content is not checked.

    When storePathCommitLog is elsewhere: `STORE@DIR`, or `STORE@DIR,DIR`.
    """
    options = options or ClusterOptions(name_servers=())
    plain = local_text(text, "store")
    root, _, logs = plain.partition("@") if "@" in plain and not Path(plain).is_dir() else (plain, "", "")
    path = Path(root).absolute()
    if path.is_dir() or ("/" in root and not _ADDRESS.fullmatch(text)):
        directories = tuple(local_path(part, "store") for part in logs.split(",") if part)
        return Endpoint(str(path), path, directories or (path / "commitlog",), options)
    if _ADDRESS.fullmatch(text):
        return Endpoint(text, None, (), options)
    raise BadOption(f"{text!r} is neither a store directory nor host:port of a broker: give one of them")


class LiveBroker:
    """Requests to one broker, Twinlog's or Java's; each may take `timeout_ms`."""

    def __init__(self, address: str, options: ClusterOptions, timeout_ms: int = _TIMEOUT_MS) -> None:
        self.address = address
        self._options = options
        self._timeout_ms = timeout_ms

    def ask(self, code: int, fields: dict[str, str] | None = None, *, accepts: tuple[int, ...] = ()) -> Response:
        (answer,) = self.ask_all([Command(code, fields=dict(fields or {}))], accepts=accepts)
        return answer

    def ask_all(self, commands: Sequence[Command], *, accepts: tuple[int, ...] = ()) -> list[Response]:
        """The answers in the order of the requests, which are sent together."""
        answers = self._retry_on_failure(list(commands))
        for command, answer in zip(commands, answers, strict=True):
            if answer.code != ResponseCode.SUCCESS and answer.code not in accepts:
                raise BrokerRefused(command.code, answer.code, answer.remark, self.address)
        return answers

    def status(self) -> dict[str, Any] | None:
        """The replication status of a Twinlog broker; None for a Java broker."""
        answer = self.ask(TwinlogCode.REPLICATION_STATUS, accepts=(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,))
        return msgspec.json.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None

    def runtime_info(self) -> dict[str, str]:
        return decode_body(KVTable, bytes(self.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)).table

    def segment_bytes(self) -> int | None:
        """The size of a Java broker's commit-log files; None when it does not show it."""
        return shown_segment_bytes(read_lines(bytes(self.ask(RequestCode.GET_BROKER_CONFIG).body)))

    def digests(self, ranges: Sequence[ByteRange]) -> list[str | None]:
        """Checksums of ranges of a Twinlog broker's log; None for a range it does not hold."""
        answer = self.ask(TwinlogCode.LOG_DIGESTS, {"ranges": ",".join(map(str, ranges))})
        return msgspec.json.decode(answer.body, type=list[str | None])

    def records_at(self, offsets: Sequence[int]) -> list[bytes | None]:
        """What the broker returns as the record at each offset; None if it has none."""
        found: list[bytes | None] = []
        for at in range(0, len(offsets), IN_FLIGHT):
            commands = [
                Command(RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(offset)})
                for offset in offsets[at : at + IN_FLIGHT]
            ]
            answers = self._retry_on_failure(commands)
            found += [bytes(one.body) if one.code == ResponseCode.SUCCESS and one.body else None for one in answers]
        return found

    def _retry_on_failure(self, commands: list[Command]) -> list[Response]:
        for attempt in range(self._options.tries):
            try:
                return connection_to(self.address, self._options).ask(commands, self._timeout_ms)
            except NetError:
                forget_connection(self.address, self._options)
                if attempt + 1 == self._options.tries:
                    raise
                time.sleep(self._options.retry_interval_ms / 1000)
        raise AssertionError("there is at least one try")


def error_text(error: Exception) -> str:
    """An expected error of a comparison or a measurement, in words."""
    text = f"an answer lacks {error}" if isinstance(error, KeyError) else str(error)
    return text or type(error).__name__
