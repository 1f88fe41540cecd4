"""The metrics port: just enough HTTP for a Prometheus scrape, in the event loop that owns the numbers.

A server may answer other paths there as well, for load balancers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from twinlog.base.addresses import address_text
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_REQUEST_SECONDS_MAX = 5
_ANSWER_SECONDS_MAX = 60  # an exporter of 10,000 topics has tens of megabytes
_REQUEST_BYTES_MAX = 16 * 1024
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Pages = Callable[[str, str], tuple[int, bytes] | None]  # path, query -> status, body; None: no such page


class Exposed(Protocol):
    def exposition(self) -> bytes:
        """The Prometheus text format."""
        ...


class MetricsServer:
    """Answers GET /metrics on a port of its own, and whatever `pages` answers."""

    def __init__(
        self, metrics: Exposed, *, host: str = "0.0.0.0", port: int = 0, port_option: str = "metricsPort"
    ) -> None:
        """`port_option` is what an operator changes when the port is taken."""
        self._metrics = metrics
        self._port_option = port_option
        self._host = host
        self.port = port
        self.pages: Pages | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; with port 0, `port` then names the one taken."""
        try:
            self._server = await asyncio.start_server(self._answer, self._host, self.port, limit=_REQUEST_BYTES_MAX)
        except OSError as error:
            problem = f"cannot serve metrics on {address_text(self._host, self.port)}: {error.strerror}"
            raise OSError(error.errno, f"{problem}; choose another {self._port_option}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics are served", address=address_text(self._host, self.port), path="/metrics")

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A scraper that disconnects, or never ends its request, does no harm to others.
        with (
            contextlib.closing(writer),
            contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError),
        ):
            async with asyncio.timeout(_REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                writer.write(self._response(head))
                await writer.drain()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].decode("ascii", "replace").partition("?")
        content_type = _CONTENT_TYPE
        if method not in (b"GET", b"HEAD"):
            status, body = 405, b"only GET is served here\n"
        elif path in ("/metrics", "/"):
            status, body = 200, self._metrics.exposition()
        elif self.pages is not None and (page := self.pages(path, query)) is not None:
            (status, body), content_type = page, "application/json"
        else:
            status, body = 404, b"see /metrics\n"
        lines = (
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)
