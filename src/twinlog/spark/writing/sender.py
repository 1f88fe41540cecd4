"""Sends requests to brokers until all are acknowledged: many queues at the same time, one request of each.

The next request of a queue is sent when the one before it is acknowledged. So the rows of a queue keep their order
through retries, and what a broker holds of them is always a prefix. `idempotent` writes rely on that.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from twinlog.client.answer_fields import read_number
from twinlog.client.errors import ClientError, name_of
from twinlog.client.sending.outgoing import STORED_CODES, SendStatus
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import CannotWrite
from twinlog.spark.remoting import BlockingConnection, Response, connection_to, forget_connection, next_opaque
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.send_frames import BatchFrames, send_command
from twinlog.spark.writing.send_queue import SendQueue, SendRequest, StoredRows
from twinlog.spark.writing.totals import SendTotals
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode

log = get_logger(__name__)
_AVOID_S = 10.0
_SMALL_BATCH_BYTES = 256 * 1024  # not refused for its size by any broker that is set up sensibly
_TOO_LARGE = "size exceeded"  # in the remark of Java 5 with SYSTEM_ERROR
_ERRORS_SHOWN_MAX = 8
_AGAIN_CODES = (  # Java's producer retries these too
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
)


class Sender:
    """Sends the requests of many queues. With `stored_rows`, requests keep their queue and no row is stored twice."""

    def __init__(self, options: WriteOptions, cluster: Cluster, stored_rows: StoredRows | None = None) -> None:
        self._options = options
        self._connect = replace(options.cluster, request_timeout_ms=options.send_timeout_ms)
        self._cluster = cluster
        self._stored_rows = stored_rows
        self._batch_frames = BatchFrames(options)
        self._send_queues: list[SendQueue] = []
        # By opaque, oldest first: address, queue, deadline.
        self._flights: dict[int, tuple[str, SendQueue, float]] = {}
        self._in_flight: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}
        self._batch_bytes: dict[str, int] = {}  # of brokers that refused larger batches
        self._waiting_bytes = 0
        self.totals = SendTotals()

    def open_queue(self, queue: MessageQueue, *, is_free: bool) -> SendQueue:
        send_queue = SendQueue(queue, is_free and self._stored_rows is None)
        self._send_queues.append(send_queue)
        return send_queue

    def put(self, send_queue: SendQueue, request: SendRequest) -> None:
        send_queue.waiting.append(request)
        self._waiting_bytes += request.size

    def drain(self, bytes_max: int = 0) -> None:
        """Send until at most `bytes_max` bytes are not acknowledged."""
        self._send_waiting()
        while self._waiting_bytes > bytes_max or (bytes_max == 0 and self._flights):
            self._send_waiting()
            if self._flights:
                self._receive()

    def close(self) -> None:
        """Wait for the answers that are still due, so that the next attempt finds all stored rows."""
        while self._flights:
            address, _, deadline = next(iter(self._flights.values()))
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            try:
                for answer in connection_to(address, self._connect).receive(left_ms):
                    self._flights.pop(answer.opaque, None)
            except NetError:  # of this broker; the others may still answer
                forget_connection(address, self._connect)
                self._flights = {opaque: one for opaque, one in self._flights.items() if one[0] != address}

    # -- out ---------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        for send_queue in self._send_queues:
            if not send_queue.waiting or send_queue.is_in_flight:
                continue
            if send_queue.is_free and self._avoided.get(send_queue.queue.broker_name, 0) > time.monotonic():
                self._move(send_queue)
            if self._in_flight[send_queue.queue.broker_name] >= self._options.in_flight_max:
                continue
            try:
                self._send(send_queue)
            except (NetError, ClientError) as error:
                # All that waits for this broker has failed too: one pause for all of them.
                broker = send_queue.queue.broker_name
                same = [one for one in self._send_queues if one.waiting and one.queue.broker_name == broker]
                self._connection_failed(self._address(send_queue) or "", same, error)
                return

    def _send(self, send_queue: SendQueue) -> None:
        if send_queue.in_doubt and self._stored_rows is not None and self._drop_stored(send_queue):
            return
        address = self._address(send_queue)
        if address is None:
            raise ClientError("no master of this broker is registered")
        connection = connection_to(address, self._connect)
        if limit := self._batch_bytes.get(send_queue.queue.broker_name):
            send_queue.split_first(limit)
        send_queue.in_doubt = True
        opaque = self._write(connection, send_queue)
        send_queue.is_in_flight = True
        deadline = time.monotonic() + self._options.send_timeout_ms / 1000
        self._flights[opaque] = address, send_queue, deadline
        self._in_flight[send_queue.queue.broker_name] += 1

    def _write(self, connection: BlockingConnection, send_queue: SendQueue) -> int:
        """Write the first request of a queue; returns its number."""
        queue, request = send_queue.queue, send_queue.waiting[0]
        if request.is_batch and self._connect.credentials is None:  # a signature covers every field and the rows
            opaque = next_opaque()
            frame = self._batch_frames.frame(queue, request, opaque)
            if frame is not None:
                connection.send_parts(frame)
                return opaque
        (opaque,) = connection.send([send_command(self._options, queue, request)])
        return opaque

    def _drop_stored(self, send_queue: SendQueue) -> bool:
        """Leave out the rows of a request in doubt that are stored; True if none is left."""
        assert self._stored_rows is not None
        request = send_queue.waiting[0]
        count = self._stored_rows.count_stored(send_queue, request)
        send_queue.in_doubt = False
        size = request.size
        request.begin += count
        self.totals.rows += count
        if request.begin < request.end:
            self._waiting_bytes -= size - request.size
            return False
        self._waiting_bytes -= size
        send_queue.waiting.popleft()
        send_queue.reset_failures()
        return True

    def _address(self, send_queue: SendQueue) -> str | None:
        return self._cluster.route(send_queue.queue.topic).master_of(send_queue.queue.broker_name)

    # -- in ----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Receive answers of the broker whose oldest request waits longest."""
        address, _, deadline = next(iter(self._flights.values()))
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            answers = connection_to(address, self._connect).receive(left_ms, RequestCode.SEND_BATCH_MESSAGE)
        except NetError as error:
            self._connection_failed(address, self._in_flight_to(address), error)
            return
        refused: list[tuple[SendQueue, str]] = []
        for answer in answers:
            flight = self._flights.pop(answer.opaque, None)
            if flight is None:
                continue
            send_queue = flight[1]
            send_queue.is_in_flight = False
            self._in_flight[send_queue.queue.broker_name] -= 1
            if answer.code in STORED_CODES:
                self._stored(send_queue, answer)
                continue
            problem = f"{address} refuses it with {name_of(ResponseCode, answer.code)}: {answer.remark}"
            if self._made_smaller(send_queue, answer, problem):
                continue
            if answer.code not in _AGAIN_CODES:
                raise CannotWrite(f"{send_queue}: {problem}")
            refused.append((send_queue, problem))
        if refused:
            self._fail([send_queue for send_queue, _ in refused], refused[0][1], is_refusal=True)

    def _stored(self, send_queue: SendQueue, answer: Response) -> None:
        request = send_queue.waiting.popleft()
        send_queue.in_doubt = False
        send_queue.reset_failures()
        self._avoided.pop(send_queue.queue.broker_name, None)
        count = request.end - request.begin
        self._waiting_bytes -= request.size
        totals = self.totals
        totals.rows += count
        totals.bytes += request.size
        totals.requests += 1
        is_parked = request.rows.delays[request.begin] or request.rows.timers[request.begin]
        if not is_parked:  # its offset is one of the topic where it waits
            last = read_number(answer.fields, "queueOffset", -1) + count - 1
            totals.last_offsets[send_queue.queue] = max(last, totals.last_offsets.get(send_queue.queue, -1))
        if self._stored_rows is not None:
            self._stored_rows.check_index(send_queue, request.rows, request.begin)
        status = SendStatus(answer.code)
        if status is SendStatus.OK:
            return
        problem = f"stored, but not as safely as the broker is set up to: {status.name}"
        if self._options.fails_when_unsafe:
            hint = "it fails because of unsafeAcks=fail; look at the broker's disk and replica"
            raise CannotWrite(f"{send_queue}: {count} rows are {problem}; {hint}")
        if status.name not in totals.unsafe:
            log.warning(f"rows are {problem}", where=str(send_queue), rows=count)
        totals.unsafe[status.name] += count

    def _made_smaller(self, send_queue: SendQueue, answer: Response, problem: str) -> bool:
        """Whether a refused batch is sent again in smaller ones: the broker's maxMessageSize may be below its size."""
        if answer.code != ResponseCode.MESSAGE_ILLEGAL and _TOO_LARGE not in answer.remark:
            return False
        if not send_queue.split_first(_SMALL_BATCH_BYTES):
            return False
        send_queue.in_doubt = False
        broker = send_queue.queue.broker_name
        if broker not in self._batch_bytes:
            log.warning("smaller batches from now on", where=str(send_queue), bytes=_SMALL_BATCH_BYTES, error=problem)
        self._batch_bytes[broker] = _SMALL_BATCH_BYTES
        return True

    # -- failures ----------------------------------------------------------------------------------

    def _in_flight_to(self, address: str) -> list[SendQueue]:
        return [send_queue for sent_to, send_queue, _ in self._flights.values() if sent_to == address]

    def _connection_failed(self, address: str, send_queues: list[SendQueue], error: Exception) -> None:
        """A connection failed: all requests in flight on it are in doubt."""
        if address:
            forget_connection(address, self._connect)
        for opaque in [opaque for opaque, (sent_to, _, _) in self._flights.items() if sent_to == address]:
            send_queue = self._flights.pop(opaque)[1]
            send_queue.is_in_flight = False
            self._in_flight[send_queue.queue.broker_name] -= 1
        # A broker that does not answer in time may have stored the rows: this is not retried for minutes.
        self._fail(send_queues, str(error), is_refusal=isinstance(error, RequestTimeout))

    def _fail(self, send_queues: list[SendQueue], error: str, *, is_refusal: bool) -> None:
        worst = max(send_queues, key=lambda send_queue: len(send_queue.errors))
        now = time.monotonic()
        for send_queue in send_queues:
            send_queue.errors.append(error)
            self._avoided[send_queue.queue.broker_name] = now + _AVOID_S
            if is_refusal:
                send_queue.refusals += 1
            elif send_queue.away_since is None:
                send_queue.away_since = now
        self._check_retries(worst, now)
        self.totals.retries += len(send_queues)
        log.warning("a send failed, trying again with a fresh route", where=str(worst), error=error)
        time.sleep(self._options.pause_s(len(worst.errors)))
        for topic in {send_queue.queue.topic for send_queue in send_queues}:
            try:
                self._cluster.route(topic, fresh=True)
            except (NetError, ClientError) as problem:
                log.warning("the route of a topic cannot be asked for, keeping the old one", error=str(problem))

    def _check_retries(self, send_queue: SendQueue, now: float) -> None:
        """CannotWrite if a request was refused too often, or its broker is away for too long."""
        count = len(send_queue.errors)
        if count <= self._options.retries:
            return
        hint = ""
        if send_queue.refusals <= self._options.retries:
            elapsed_ms = 0 if send_queue.away_since is None else (now - send_queue.away_since) * 1000
            if elapsed_ms < self._options.cluster.broker_wait_ms:
                return
            hint = f"; its broker is away for {elapsed_ms / 1000:.0f} s: start it, or set brokerWait to wait longer"
        errors = list(enumerate(send_queue.errors, 1))
        shown = errors if count <= _ERRORS_SHOWN_MAX else errors[:3] + errors[-3:]
        tries = "; ".join(f"{n}. {text}" for n, text in shown)
        raise CannotWrite(f"{send_queue}: not stored after {count} tries: {tries}{hint}")

    def _move(self, send_queue: SendQueue) -> None:
        """Choose a queue of the broker whose last failure is longest ago."""
        queues = self._cluster.route(send_queue.queue.topic).writable
        now = time.monotonic()
        failed = {queue: max(now, self._avoided.get(queue.broker_name, 0)) for queue in queues}
        able = [queue for queue in queues if failed[queue] == min(failed.values())]
        if able and send_queue.queue not in able:
            send_queue.queue = able[self._send_queues.index(send_queue) % len(able)]
            send_queue.in_doubt = False
