"""Heartbeats: brokers list a client, and send it requests, while its heartbeats arrive.

Every broker of a route in use gets one every 30 s, and again at once when it is new or a connection was lost: a broker
identifies a client by its connection. After a heartbeat that failed, the next one comes sooner.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from twinlog.client.errors import REQUEST_FAILURES
from twinlog.client.tasks import wait_for_event
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import HeartbeatData, encode_body

log = get_logger(__name__)
_FAILED_PAUSE_MS = 2_000


class Heartbeats:
    """Sends what `data` returns to `brokers()`; `post` delivers one heartbeat to one broker."""

    def __init__(
        self,
        data: Callable[[], HeartbeatData],
        brokers: Callable[[], set[str]],
        post: Callable[[str, bytes], Awaitable[object]],
        interval_ms: int,
    ) -> None:
        self._data, self._brokers, self._post, self._interval_ms = data, brokers, post, interval_ms
        self._wanted = asyncio.Event()

    def send_soon(self) -> None:
        """Have `run` send heartbeats now."""
        self._wanted.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        pause_ms = self._interval_ms
        while True:
            await wait_for_event(self._wanted, pause_ms)
            failed = await self.send()
            pause_ms = min(_FAILED_PAUSE_MS, self._interval_ms) if failed else self._interval_ms

    async def send(self, addresses: Iterable[str] | None = None) -> list[Exception]:
        """Send one heartbeat to each of these brokers (to all in use by default); the failures."""
        receivers = sorted(self._brokers() if addresses is None else addresses)
        if not receivers:
            return []
        body = encode_body(self._data())
        results = await asyncio.gather(*(self._post(address, body) for address in receivers), return_exceptions=True)
        failed: list[Exception] = []
        for address, result in zip(receivers, results, strict=True):
            if isinstance(result, REQUEST_FAILURES):
                log.warning("a heartbeat was not taken", broker=address, error=str(result))
                failed.append(result)
            elif isinstance(result, BaseException):
                raise result
        return failed
