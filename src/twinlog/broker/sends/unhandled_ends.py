"""Ends of transactions that were taken out of a chunk, to be handled after its sends are answered.

A producer with many threads sends half messages and ends of others in turn. An end is a oneway: nobody waits for it,
and Java handles it in a thread pool of its own, in no order with the sends. So the half messages of a chunk are stored
together and answered first, and the producer goes on while the ends are handled.

Nothing but such sends passes an end: it is handled before the next request of another kind, so ends keep their order,
also with those that want an answer. At most ENDS_MAX wait, since no turn ends while they are handled (`net/turns.py`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from twinlog.wire.codes import RequestCode
from twinlog.wire.command import ONEWAY_FLAG
from twinlog.wire.sends.end_headers import END_START, UnhandledEnd, decode_json_end

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Connection

ENDS_MAX = 64  # about 1 ms


class UnhandledEnds:
    """The ends in the chunk that is handled now; `handle` is called after each chunk at the latest."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._rpc = ctx.stats.rpc.row(RequestCode.END_TRANSACTION)
        self.waiting: list[tuple[int, UnhandledEnd]] = []  # each with the place in the chunk where it ends

    def take(self, header: bytes, frame_end: int) -> bool:
        """Whether this header, of a frame without a body, is that of an end which can wait; it is kept then."""
        if self._ctx.end_together is None or not header.startswith(END_START) or len(self.waiting) >= ENDS_MAX:
            return False
        decoded = decode_json_end(header, ONEWAY_FLAG)
        if decoded is None:
            return False
        self.waiting.append((frame_end, (decoded, header)))
        return True

    def drop_after(self, position: int) -> None:
        """Forget the ends behind this position of the chunk: their frames are looked at again."""
        while self.waiting and self.waiting[-1][0] > position:
            self.waiting.pop()

    def handle(self, connection: Connection) -> None:
        """Handle all that were taken, and forget them."""
        ends, self.waiting = self.waiting, []
        if ends and self._ctx.end_together is not None:
            started = perf_counter()
            self._ctx.end_together(connection, [end for _, end in ends])
            self._rpc.took(perf_counter() - started, len(ends))
