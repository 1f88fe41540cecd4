"""Requests to one live broker, in blocking calls with a time limit, and the tables of metadata that it gives.

If a connection is lost, the request is sent again a few times. A refusal is an error that names the broker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from twinlog.client.admin.servers import read_lines
from twinlog.client.errors import BrokerRefused
from twinlog.metadata.tables import open_tables
from twinlog.net.errors import NetError
from twinlog.replication.digests import ByteRange
from twinlog.replication.metadata.kinds import Kind
from twinlog.replication.metadata.table_pages import TablePages, decode_answer
from twinlog.replication.segment_bytes import shown_segment_bytes
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.remoting import Response, connection_to, forget_connection
from twinlog.wire.bodies import KVTable, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode

_TIMEOUT_MS = 60_000  # reading a range of a log that is not cached takes a while
IN_FLIGHT = 64


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

    def table(self, kind: Kind) -> Any:
        """A whole table of metadata, in the form of its file; it is gathered from pages."""
        pages, decoder = TablePages(kind), kind.table(open_tables(None, 0))
        while True:
            answer = self.ask(kind.request_code, pages.fields())
            if pages.take(decode_answer(kind, decoder, bytes(answer.body)), answer.fields):
                return pages.table

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
