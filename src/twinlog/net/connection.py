"""One remoting connection, the same class on both sides: either peer may ask, either answers.

Fast path: all frames of a received chunk are walked by offset, handled one after another, and their
answers leave in one write. The price is that a slow handler holds up its whole connection, so
handlers that wait return an awaitable, or None and answer later through `send`.
"""

import asyncio
import itertools
import os
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from twinlog.base.address_list import plain_host
from twinlog.base.addresses import address_text
from twinlog.net.error_answers import answer_for_error
from twinlog.net.errors import ConnectionLost, RequestTimeout
from twinlog.net.inbound import Inbound, UnfinishedFrame
from twinlog.net.waiting_answers import WaitingAnswers
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, decode_header, encode_command
from twinlog.wire.errors import FrameError, HeaderError, WireError
from twinlog.wire.frame import JSON, frame_span

log = get_logger(__name__)

Buffer = bytes | bytearray | memoryview
Answer = Command | bytes | list[Buffer] | None
Handler = Callable[["Request"], Answer | Awaitable[Answer]]
FastPath = Callable[["Connection", bytes, int, int, list[Buffer]], int]
"""(connection, chunk, begin, end, answers): handles the frames it knows at the front of a chunk, adds their answers,
and returns where the first frame begins that it leaves alone."""
_LENGTH = struct.Struct(">i")
_OUT_BYTES_MAX = 1024 * 1024  # of answers to one chunk, before the peer must have taken some
_TINY_BYTES = 1024  # smaller chunks of a large frame are gathered: an object for each would outweigh them by far
_BUFFERS_APART_MAX = 8  # more are joined: gathering costs more per piece than copying it
_numbers = itertools.count(1).__next__  # one id space for all connections of the process, as in Java


def next_opaque() -> int:
    """The number of the next request, by which its answer is found."""
    return _numbers() & 0x7FFFFFFF


@dataclass(slots=True)
class Request(Command):
    """A command that a peer sent on `connection`."""

    connection: "Connection" = field(default=cast("Connection", None), repr=False, compare=False)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Command:
        """The answer to this request; return it from the handler, or give it to `connection.send` later."""
        return Command(code, self.opaque, RESPONSE_FLAG, remark=remark, fields=fields, body=body)


@dataclass(slots=True)
class ConnectionOptions:
    """What all connections of one server or pool share."""

    handlers: Mapping[int, Handler] = field(default_factory=dict[int, Handler])
    header_type: int = JSON
    after_batch: Callable[[], object] | None = None
    fast: FastPath | None = None  # gets every chunk first
    unread_bytes_max: int = 1 << 62  # a peer that leaves more of its answers unread is disconnected
    inbound: Inbound = field(default_factory=lambda: Inbound(1 << 62))  # what all of them hold of unfinished requests
    before_request: Callable[[Command], None] | None = None  # signs outgoing requests
    on_connect: Callable[["Connection"], None] | None = None
    on_close: Callable[["Connection"], None] | None = None


class Connection(asyncio.Protocol):
    """A live connection. Invariant: after `closed` is set nothing is written and no request stays waiting."""

    def __init__(self, options: ConnectionOptions, *, peer: tuple[str, int] | None = None, asks: bool = False) -> None:
        self._options = options
        self._asks = asks  # we opened it, to ask; else the peer did
        self._transport: asyncio.Transport | None = None
        self._socket_fd = -1  # where clear text may be written directly
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes | bytearray] = []
        self._chunk_bytes = 0
        self._need_bytes = 4
        self._inbound = options.inbound
        self._frame = UnfinishedFrame(self)
        self._answers = WaitingAnswers(self._loop)
        self._gathered: list[bytes] = []  # requests that leave at the end of this turn of the loop
        self._gathered_bytes = 0
        self._tasks: dict[asyncio.Task[None], int] = {}  # with the bytes of the body that each works on
        self._out: list[Buffer] | None = None
        self._out_bytes = 0
        # Whole frames are kept: the peer does not read its answers, or waits for too many, or for its turn.
        self._stalled = self._waits_for_turn = False
        self._errors = 0  # requests in a row that nobody could have answered
        self._writable = asyncio.Event()
        self._writable.set()
        self._close_reason: object = None
        self.closed = False
        self.peer: tuple[str, int] = peer or ("", 0)
        self.last_active = self._loop.time()
        self.local_host = ""  # the address on which the peer reached us
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Callable[[Connection], None]] = []

    @property
    def peer_text(self) -> str:
        return address_text(*self.peer)

    # -- asking --------------------------------------------------------------------------------

    async def request(
        self, code: int, fields: dict[str, str] | None = None, body: bytes | None = None, timeout_ms: int = 3000
    ) -> Command:
        """The peer's answer, whatever its code; RequestTimeout or ConnectionLost when there is none."""
        command = Command(code, next_opaque(), fields=fields, body=body)
        return await self.ask(self._encoded_request(command), command.opaque, code, timeout_ms)

    async def ask(self, frame: bytes, opaque: int, code: int, timeout_ms: int) -> Command:
        """The same for a request that is encoded (and signed) already, with a number from `next_opaque`."""
        if self.closed:
            raise ConnectionLost(self.peer_text, self._close_reason)
        answers = self._answers
        answer = answers.add(opaque, timeout_ms)
        try:
            self._post(frame)
            return await answer
        except TimeoutError:
            raise RequestTimeout(self.peer_text, code, timeout_ms) from None
        finally:
            answers.remove(opaque)

    def oneway(self, code: int, fields: dict[str, str] | None = None, body: bytes | None = None) -> None:
        """Send a request that is never answered."""
        self.send(self._encoded_request(Command(code, next_opaque(), ONEWAY_FLAG, fields=fields, body=body)))

    def _encoded_request(self, command: Command) -> bytes:
        if self.closed:
            raise ConnectionLost(self.peer_text, self._close_reason)
        if self._options.before_request is not None:
            self._options.before_request(command)
        return encode_command(command, self._options.header_type)

    def _post(self, frame: bytes) -> None:
        """Write a request: at once when no other is on its way, else with all of this turn of the loop.

        So a lone request does not wait for anything, and of many at a time dozens leave in one system call.
        """
        if self._out is not None or len(self._answers.futures) <= 1:
            self.send(frame)
            return
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(frame)
        self._gathered_bytes += len(frame)
        if self._gathered_bytes > _OUT_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        frames, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if frames and not self.closed:
            self._write(list(frames))

    # -- sending -------------------------------------------------------------------------------

    def send(self, answer: Answer) -> None:
        """Write a command or ready bytes; within a batch they leave with the batch's other answers."""
        if self.closed or answer is None:
            return
        if self._gathered:
            self._flush()  # they were first
        out = self._out
        if out is None:
            self._write(self._encoded(answer))
        else:
            buffers = self._encoded(answer)
            out += buffers
            self._out_bytes += sum(map(len, buffers))

    @property
    def is_full(self) -> bool:
        """Whether the answers of this chunk must be written before the next request is handled."""
        return self._out_bytes > _OUT_BYTES_MAX

    async def drain(self) -> None:
        """Wait until the peer has taken enough that more may be written."""
        await self._writable.wait()

    @property
    def closing(self) -> bool:
        """Whether it closes as soon as everything is written."""
        return self._transport is not None and self._transport.is_closing()

    def abort(self) -> None:
        """Drop the connection at once, with what is still unwritten."""
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: object = None) -> None:
        """Close after what is already written; requests without an answer fail with `reason`."""
        if self._close_reason is None:
            self._close_reason = reason
        if self._transport is not None and not self.closed:
            self._flush()
            self._transport.close()

    def _encoded(self, answer: Command | bytes | list[Buffer]) -> list[Buffer]:
        if isinstance(answer, list):
            return answer
        return [answer if isinstance(answer, bytes) else encode_command(answer, self._options.header_type)]

    def _write(self, buffers: list[Buffer]) -> None:
        """Write now if the socket takes it: the transport would wait for the end of the loop's turn."""
        transport = self._transport
        assert transport is not None
        unread = transport.get_write_buffer_size()
        if unread > self._options.unread_bytes_max:
            if not transport.is_closing():
                log.warning("closing a connection that does not read its answers", peer=self.peer_text, bytes=unread)
                self._close_reason = f"{unread} bytes of answers were not read"
                transport.abort()
            return
        if self._socket_fd < 0 or transport.is_closing() or unread:
            transport.write(b"".join(buffers))
            return
        if len(buffers) > _BUFFERS_APART_MAX:
            buffers = [b"".join(buffers)]
        try:
            sent = os.writev(self._socket_fd, buffers)
        except OSError:  # full, or closed: the transport handles both
            sent = 0
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
            else:
                transport.write(memoryview(buffer)[sent:])
                sent = 0

    # -- receiving -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        if self._chunks:
            if len(data) >= _TINY_BYTES:
                self._chunks.append(data)
            elif isinstance(self._chunks[-1], bytearray):
                self._chunks[-1] += data
            else:
                self._chunks.append(bytearray(data))
            self._chunk_bytes += len(data)
            if self._stalled or self._chunk_bytes < self._need_bytes:
                self._note_kept(len(data))
                return
            data = self._take_kept()
        self._process(data)

    def _take_kept(self) -> bytes:
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._inbound.end(self._frame)
        return data

    def _process(self, data: bytes) -> None:
        """Handle the whole frames in `data` and keep the rest."""
        self._out = []
        self._out_bytes = 0
        try:
            try:
                used = self._handle_frames(data)
            finally:
                out, self._out = self._out, None
                if out and not self.closed:
                    self._write(out)
                if self._options.after_batch is not None:
                    # After the answers are written: no later request of the peer is handled before this is done.
                    self._options.after_batch()
            if used < len(data):
                self._keep(data[used:] if used else data)
        except (FrameError, HeaderError) as error:
            log.warning("closing a connection that broke the protocol", peer=self.peer_text, error=str(error))
            self.close(error)
        except Exception as error:
            log.error("closing a connection whose requests failed", peer=self.peer_text, exc_info=error)
            self.close(error)

    def _keep(self, rest: bytes) -> None:
        """Hold an incomplete frame; a large one is joined once, when its last byte is there."""
        self._chunks.append(rest)
        self._chunk_bytes = len(rest)
        self._need_bytes = 4 + _LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else 4
        self._note_kept(len(rest))

    def _note_kept(self, count: int) -> None:
        inbound = self._inbound
        inbound.grow(self._frame, count, self.last_active)
        if inbound.is_full:
            self._stall()

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from the peer until it has taken answers, or got some."""
        return self._stalled or not self._writable.is_set()

    def drop_frame(self, reason: str) -> None:
        """Give up a frame that is not whole, and with it the connection."""
        log.warning("closing a connection with an unfinished request", peer=self.peer_text, why=reason)
        self._chunks.clear()
        if self._close_reason is None:
            self._close_reason = reason
        self.abort()

    def _handle_frames(self, data: bytes) -> int:
        at, end = 0, len(data)
        fast, out, inbound = self._options.fast, self._out, self._inbound
        while True:
            if fast is not None and out is not None and (handled := fast(self, data, at, end, out)) != at:
                at, self._errors = handled, 0
                if self._out_bytes > _OUT_BYTES_MAX:
                    self._write_gathered()
                    if self._stalled:
                        return at
            span = frame_span(data, at, end)
            if span is None:
                return at
            header_type, header_end, frame_end = span
            request = decode_header(data[at + 8 : header_end], header_type, Request)
            if header_end < frame_end:
                request.body = data[header_end:frame_end]
            at = frame_end
            if request.flag & RESPONSE_FLAG:
                waiting = self._answers.futures.get(request.opaque)
                if waiting is not None and not waiting.done():
                    waiting.set_result(request)
                continue
            self.handle(request)
            if self._out_bytes > _OUT_BYTES_MAX:
                self._write_gathered()
            if self._errors:
                inbound.check_errors(self._errors)
            if at < end and inbound.turns.is_over():
                self._end_turn()
            if self._stalled:
                return at

    def _end_turn(self) -> None:
        """Leave the rest of the chunk, and what the peer sends meanwhile, until others were served."""
        self._stalled = self._waits_for_turn = True
        self._inbound.turns.wait(self._next_turn)
        if self._transport is not None:
            self._transport.pause_reading()

    def _next_turn(self) -> None:
        self._waits_for_turn = False
        self._go_on()

    def _write_gathered(self) -> None:
        """Write the answers so far; if the peer takes too little of them, its other requests must wait."""
        out, self._out_bytes = self._out, 0
        if out and not self.closed:
            self._write(out)
            out.clear()
        if not self._writable.is_set():
            self._stalled = True

    def handle(self, request: Request) -> None:
        """Answer a request of the peer, now or later; a fast path gives back here what it cannot finish."""
        request.connection = self
        handler = self._options.handlers.get(request.code)
        if handler is None:
            self._errors += 1
            remark = f" request type {request.code} not supported"
            self._answer(request, request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            result = handler(request)
        except Exception as error:
            self._answer(request, self._answer_for_error(request, error))
            return
        if result is None or isinstance(result, Command | bytes | list):
            self._errors = 0
            if result is not None:
                self._answer(request, result)
        else:
            task = self._loop.create_task(self._answer_later(request, result))
            self._tasks[task] = size = len(request.body or b"")
            self._inbound.take(size)
            task.add_done_callback(self._answered)
            is_many = len(self._tasks) >= self._inbound.tasks_max
            if is_many and not self._stalled:
                self._inbound.many_tasks(self.peer_text)
            if is_many or self._inbound.is_full:
                self._stall()

    def _stall(self) -> None:
        """Read nothing more until some of the requests in work, of this peer or of all, are answered."""
        self._stalled = True
        if self._inbound.is_full:
            self._inbound.wait(self._go_on)
        if self._transport is not None:
            self._transport.pause_reading()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._inbound.give_back(self._tasks.pop(task))
        if self._stalled and len(self._tasks) <= self._inbound.tasks_max // 2:
            self._go_on()

    async def _answer_later(self, request: Request, pending: Awaitable[Answer]) -> None:
        try:
            result = await pending
            self._errors = 0
        except Exception as error:
            result = self._answer_for_error(request, error)
        if result is not None:
            self._answer(request, result)

    def _answer_for_error(self, request: Request, error: Exception) -> Command:
        self._errors += isinstance(error, WireError)
        return answer_for_error(request, error)

    def _answer(self, request: Request, answer: Command | bytes | list[Buffer]) -> None:
        if not request.flag & ONEWAY_FLAG:
            try:
                self.send(answer)
            except FrameError as error:  # an answer too large for one frame
                self.send(request.reply(ResponseCode.SYSTEM_ERROR, str(error)))

    # -- opening and closing -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None and transport.get_extra_info("ssl_object") is None:
            self._socket_fd = connected.fileno()
        if not self.peer[0]:
            self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.local_host = plain_host(str((transport.get_extra_info("sockname") or ("", 0))[0]))
        if self._options.on_connect is not None:
            self._options.on_connect(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._socket_fd = -1
        self._writable.set()
        self._chunks.clear()
        self._inbound.end(self._frame)
        self._answers.fail_all(ConnectionLost(self.peer_text, self._close_reason or exc))
        callbacks = [*self.on_close, self._options.on_close] if self._options.on_close else list(self.on_close)
        for callback in callbacks:
            callback(self)

    def pause_writing(self) -> None:
        # The peer does not read its answers: stop reading its requests until it does. But who asks keeps reading: what
        # the peer does not read are requests, and it may do so because we have not read its answers.
        self._writable.clear()
        if self._transport is not None and not self._asks:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self._go_on()

    def _go_on(self) -> None:
        """Read again, and first handle what is kept, unless there still is a reason to wait."""
        if self._transport is None or self.closed or not self._writable.is_set() or self._waits_for_turn:
            return
        if len(self._tasks) >= self._inbound.tasks_max:
            return
        if self._inbound.is_full:
            self._stall()
            return
        self._transport.resume_reading()
        if self._stalled:
            self._stalled = False
            self.last_active = self._loop.time()  # we paused, not the peer: its unfinished frame is not late
            self._process(self._take_kept())
