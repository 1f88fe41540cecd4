"""The memory of requests that a server cannot answer yet: frames that are not whole, and bodies in work.

One limit holds for all connections. When unfinished frames exceed it, connections are closed until there is room: those
of the host that holds most, and among these first the one whose frame made no progress for the longest time. So a peer
that sends the beginnings of frames and stops loses its own connections first; a slow one continues as long as bytes
arrive. Bodies that wait for a thread or a disk end by themselves: above the limit nothing more is read until some have.

A frame that has begun must grow by 64 KiB, or end, once in `progress_s_max`: a 16 MiB frame may take hours, but an
abandoned beginning is dropped.

A connection whose requests are all unknown, or cannot be decoded, is closed after `errors_max` of them in a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from twinlog.net.limits import Limits, limit_text
from twinlog.net.turns import Turns
from twinlog.telemetry.log import get_logger
from twinlog.telemetry.metrics import Metrics
from twinlog.wire.errors import FrameError

if TYPE_CHECKING:
    from twinlog.settings.net import NetSettings

log = get_logger(__name__)

BYTES_KEY = "maxUnfinishedFrameBytes"
TASKS_KEY = "maxWaitingRequestsPerConnection"
ERRORS_KEY = "maxErrorsInARowPerConnection"
PROGRESS_KEY = "frameProgressTimeoutSeconds"
_PROGRESS_BYTES = 64 * 1024
_ROOM = 8  # this part of the budget is freed at once: to choose connections to close, all are examined


class Owner(Protocol):
    """A connection."""

    peer: tuple[str, int]

    @property
    def is_paused(self) -> bool: ...

    def drop_frame(self, reason: str) -> None: ...


class UnfinishedFrame:
    """The beginning of one connection's next frame; `bytes` is 0 while there is none."""

    __slots__ = ("bytes", "goal", "owner", "progress_s")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.bytes = 0
        self.goal = 0  # bytes at which it has made progress again
        self.progress_s = 0.0


class Inbound:
    """The sums over all connections: bytes of unfinished frames, and bytes of bodies in work."""

    def __init__(
        self,
        bytes_max: int = 256 * 1024 * 1024,
        progress_s_max: float = 60.0,
        limits: Limits | None = None,
        tasks_max: int = 1024,
        errors_max: int = 0,
    ) -> None:
        self.tasks_max = tasks_max  # requests of one connection that are answered later
        self._errors_max = errors_max
        self.turns = Turns()
        self.bytes = 0
        self.work_bytes = 0
        self.bytes_max = bytes_max
        self.progress_s_max = progress_s_max
        self._limits = limits or Limits()
        self._frames: set[UnfinishedFrame] = set()
        self._waiting: list[Callable[[], None]] = []

    @classmethod
    def configured(cls, settings: NetSettings, limits: Limits) -> Inbound:
        """With the limits that an operator has set."""
        return cls(
            settings.unfinished_bytes_max,
            settings.progress_seconds_max,
            limits,
            settings.waiting_requests_max,
            settings.errors_in_a_row_max,
        )

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read until some of the work is done."""
        return self.work_bytes > self.bytes_max

    def many_tasks(self, peer: str) -> None:
        """A connection has so many requests in work that its next ones must wait."""
        self._limits.count(TASKS_KEY)
        log.info("the next requests of a connection wait", peer=peer, key=TASKS_KEY, limit=self.tasks_max)

    def check_errors(self, in_a_row: int) -> None:
        """FrameError for a connection that sends nothing but errors."""
        if self._errors_max and in_a_row > self._errors_max:
            self._limits.count(ERRORS_KEY)
            what = f"{in_a_row} requests in a row were unknown or could not be decoded"
            raise FrameError(limit_text(what, ERRORS_KEY, self._errors_max, "is this a RocketMQ client?"))

    def grow(self, frame: UnfinishedFrame, count: int, now_s: float) -> None:
        """`count` more bytes of an unfinished frame have arrived. It may be dropped for it, or others."""
        if frame.bytes == 0:
            self._frames.add(frame)
            frame.goal = 0
        frame.bytes += count
        self.bytes += count
        if frame.bytes >= frame.goal:
            frame.progress_s = now_s
            frame.goal = frame.bytes + _PROGRESS_BYTES
        if self.bytes > self.bytes_max:
            self._make_room()

    def end(self, frame: UnfinishedFrame) -> None:
        """The frame is whole, or its connection is gone."""
        self.bytes -= frame.bytes
        frame.bytes = 0
        self._frames.discard(frame)

    def take(self, count: int) -> None:
        """A body of so many bytes is in work."""
        self.work_bytes += count

    def give_back(self, count: int) -> None:
        self.work_bytes -= count
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                try:
                    go_on()
                except Exception as error:  # the others must still continue
                    log.error("a connection that waited cannot continue", exc_info=error)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once it is not full any more."""
        self._waiting.append(go_on)

    def drop_late(self, now_s: float) -> None:
        """Close the connections whose frames made no progress for too long."""
        for frame in list(self._frames):
            if frame.owner.is_paused:  # by us: nothing could arrive
                frame.progress_s = now_s
            elif now_s - frame.progress_s > self.progress_s_max:
                why = f"its frame had no {_PROGRESS_BYTES // 1024} KiB more in {self.progress_s_max:g} s"
                self._drop(frame, PROGRESS_KEY, f"{why}, which is {PROGRESS_KEY}")

    def watch(self, metrics: Metrics, prefix: str) -> None:
        metrics.watch(
            f"{prefix}_unfinished_frame_bytes",
            f"Bytes of frames that are not whole yet; the limit is {BYTES_KEY}",
            lambda: self.bytes,
        )
        metrics.watch(f"{prefix}_work_bytes", "Bytes of requests that are in work", lambda: self.work_bytes)
        metrics.watch(f"{prefix}_unfinished_frames", "Frames that are not whole yet", lambda: len(self._frames))

    def _make_room(self) -> None:
        wanted = self.bytes_max - self.bytes_max // _ROOM
        why = f"{self.bytes} bytes of unfinished frames are held, {BYTES_KEY} is {self.bytes_max}"
        by_host: dict[str, list[UnfinishedFrame]] = {}
        for frame in sorted(self._frames, key=lambda one: (one.owner.is_paused, one.progress_s), reverse=True):
            by_host.setdefault(frame.owner.peer[0], []).append(frame)
        most = [(-sum(frame.bytes for frame in frames), host) for host, frames in by_host.items()]
        heapq.heapify(most)
        while self.bytes > wanted and most:
            held, host = most[0]
            frame = by_host[host].pop()
            if by_host[host]:
                heapq.heapreplace(most, (held + frame.bytes, host))
            else:
                heapq.heappop(most)
            self._drop(frame, BYTES_KEY, why)

    def _drop(self, frame: UnfinishedFrame, key: str, reason: str) -> None:
        self._limits.count(key)
        self.end(frame)
        frame.owner.drop_frame(reason)
