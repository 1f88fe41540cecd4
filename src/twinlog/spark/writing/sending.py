"""Requests on their way to brokers: several at a time, one for each queue, every one acknowledged in the end.

A queue's next request leaves when the one before is acknowledged. So rows of a queue keep their order through retries,
and what a broker holds of a queue's rows is always a beginning of them, which `idempotent` writes rely on.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Protocol

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.answer_fields import read_number
from twinlog.client.errors import ClientError, name_of
from twinlog.client.sending.outgoing import STORED_CODES, SendStatus
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import CannotWrite
from twinlog.spark.offsets import where
from twinlog.spark.remoting import Answer, connection_to, forget_connection
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.rows import EncodedRows
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import SendHeaderV2

log = get_logger(__name__)
_AVOID_S = 10.0
_TOLD_MAX = 8
_AGAIN_CODES = (  # as Java's producer: another try, or another broker, may do
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
)


@dataclass(slots=True)
class Request:
    """Rows `begin` to `end` of `rows`, as one batch or as one message."""

    rows: EncodedRows
    begin: int
    end: int
    is_batch: bool

    @property
    def size(self) -> int:
        return int(self.rows.offsets[self.end] - self.rows.offsets[self.begin])


@dataclass(slots=True)
class Lane:
    """A queue's requests in their order; a free lane may change to another queue."""

    queue: MessageQueue
    is_free: bool
    waiting: deque[Request] = field(default_factory=deque)
    flying: bool = False  # the first of `waiting` is on its way
    in_doubt: bool = False  # the first of `waiting` was sent, and nobody knows whether it was stored
    told: list[str] = field(default_factory=list)  # what went wrong since the last success
    refusals: int = 0  # how often it was refused or not answered in time since then
    away_since: float | None = None  # since when its broker is away


@dataclass(slots=True)
class Tally:
    """What was acknowledged."""

    rows: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    unsafe: Counter[str] = field(default_factory=Counter)  # rows stored without the wished safety, by status
    last_offsets: dict[MessageQueue, int] = field(default_factory=dict)


class Memory(Protocol):
    """Knows, for a write that must store no row twice, what brokers hold."""

    def stored_of(self, lane: Lane, request: Request) -> int:
        """How many rows at the front of a request that may have arrived are stored."""
        ...

    def check_index(self, lane: Lane, rows: EncodedRows, row: int) -> None:
        """Raise when the broker could not be asked for this row, which it has acknowledged."""
        ...


class Sender:
    """Sends requests lane by lane. With a `memory` it stays with a lane's queue and sends nothing twice."""

    def __init__(self, options: WriteOptions, cluster: Cluster, memory: Memory | None = None) -> None:
        self._options = options
        self._connect = replace(options.cluster, request_timeout_ms=options.send_timeout_ms)
        self._cluster = cluster
        self._memory = memory
        self._lanes: list[Lane] = []
        self._flights: dict[int, tuple[str, Lane, float]] = {}  # by opaque: address, lane, deadline; oldest first
        self._in_flight: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}
        self._waiting_bytes = 0
        self.tally = Tally()

    def open_lane(self, queue: MessageQueue, *, is_free: bool) -> Lane:
        lane = Lane(queue, is_free and self._memory is None)
        self._lanes.append(lane)
        return lane

    def put(self, lane: Lane, request: Request) -> None:
        lane.waiting.append(request)
        self._waiting_bytes += request.size

    def drain(self, bytes_max: int = 0) -> None:
        """Send, until no more than so many bytes wait for a place or for their acknowledgement."""
        self._launch()
        while self._waiting_bytes > bytes_max or (bytes_max == 0 and self._flights):
            self._launch()
            if self._flights:
                self._receive()

    def close(self) -> None:
        """Wait for what is on its way, so that the next attempt finds it, and leave no answers behind."""
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

    def _launch(self) -> None:
        for lane in self._lanes:
            if not lane.waiting or lane.flying:
                continue
            if lane.is_free and self._avoided.get(lane.queue.broker_name, 0) > time.monotonic():
                self._move(lane)
            if self._in_flight[lane.queue.broker_name] >= self._options.in_flight_max:
                continue
            try:
                self._send(lane)
            except (NetError, ClientError) as error:
                # What waits for the same broker has failed with it; one pause serves all.
                broker = lane.queue.broker_name
                same = [one for one in self._lanes if one.waiting and one.queue.broker_name == broker]
                self._lose(self._address(lane) or "", same, error)
                return

    def _send(self, lane: Lane) -> None:
        if lane.in_doubt and self._memory is not None and self._drop_stored(lane):
            return
        address = self._address(lane)
        if address is None:
            raise ClientError("no master of this broker is registered")
        connection = connection_to(address, self._connect)
        lane.in_doubt = True
        (opaque,) = connection.send([_command(self._options, lane.queue, lane.waiting[0])])
        lane.flying = True
        deadline = time.monotonic() + self._options.send_timeout_ms / 1000
        self._flights[opaque] = address, lane, deadline
        self._in_flight[lane.queue.broker_name] += 1

    def _drop_stored(self, lane: Lane) -> bool:
        """Leave out the rows of a doubtful request that are stored; True when none is left."""
        assert self._memory is not None
        request = lane.waiting[0]
        count = self._memory.stored_of(lane, request)
        lane.in_doubt = False
        size = request.size
        request.begin += count
        self.tally.rows += count
        if request.begin < request.end:
            self._waiting_bytes -= size - request.size
            return False
        self._waiting_bytes -= size
        lane.waiting.popleft()
        self._went_well(lane)
        return True

    def _address(self, lane: Lane) -> str | None:
        return self._cluster.route(lane.queue.topic).master_of(lane.queue.broker_name)

    # -- in ----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Take in answers of the broker that has been asked for longest."""
        address, _, deadline = next(iter(self._flights.values()))
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            answers = connection_to(address, self._connect).receive(left_ms, RequestCode.SEND_BATCH_MESSAGE)
        except NetError as error:
            self._lose(address, self._flown_to(address), error)
            return
        refused: list[tuple[Lane, str]] = []
        for answer in answers:
            flight = self._flights.pop(answer.opaque, None)
            if flight is None:
                continue
            lane = flight[1]
            lane.flying = False
            self._in_flight[lane.queue.broker_name] -= 1
            if answer.code in STORED_CODES:
                self._stored(lane, answer)
                continue
            told = f"{address} refuses it with {name_of(ResponseCode, answer.code)}: {answer.remark}"
            if answer.code not in _AGAIN_CODES:
                raise CannotWrite(f"{_place(lane)}: {told}")
            refused.append((lane, told))
        if refused:
            self._fail([lane for lane, _ in refused], refused[0][1], is_refusal=True)

    def _stored(self, lane: Lane, answer: Answer) -> None:
        request = lane.waiting.popleft()
        lane.in_doubt = False
        self._went_well(lane)
        self._avoided.pop(lane.queue.broker_name, None)
        count = request.end - request.begin
        self._waiting_bytes -= request.size
        tally = self.tally
        tally.rows, tally.bytes, tally.requests = tally.rows + count, tally.bytes + request.size, tally.requests + 1
        if not request.rows.delays[request.begin]:  # those wait in another queue, whose offset it is
            last = read_number(answer.fields, "queueOffset", -1) + count - 1
            tally.last_offsets[lane.queue] = max(last, tally.last_offsets.get(lane.queue, -1))
        if self._memory is not None:
            self._memory.check_index(lane, request.rows, request.begin)
        status = SendStatus(answer.code)
        if status is SendStatus.OK:
            return
        told = f"stored, but not as safely as the broker is set up to: {status.name}"
        if self._options.fails_when_unsafe:
            hint = "it fails because of unsafeAcks=fail; look at the broker's disk and replica"
            raise CannotWrite(f"{_place(lane)}: {count} rows are {told}; {hint}")
        if status.name not in tally.unsafe:
            log.warning(f"rows are {told}", where=_place(lane), rows=count)
        tally.unsafe[status.name] += count

    # -- failures ----------------------------------------------------------------------------------

    def _went_well(self, lane: Lane) -> None:
        lane.told.clear()
        lane.refusals, lane.away_since = 0, None

    def _flown_to(self, address: str) -> list[Lane]:
        return [lane for flown, lane, _ in self._flights.values() if flown == address]

    def _lose(self, address: str, lanes: list[Lane], error: Exception) -> None:
        """A connection failed: all requests on their way over it are in doubt."""
        if address:
            forget_connection(address, self._connect)
        for opaque in [opaque for opaque, (flown, _, _) in self._flights.items() if flown == address]:
            lane = self._flights.pop(opaque)[1]
            lane.flying = False
            self._in_flight[lane.queue.broker_name] -= 1
        # A broker that does not answer in time may have stored the rows: that is not repeated for minutes.
        self._fail(lanes, str(error), is_refusal=isinstance(error, RequestTimeout))

    def _fail(self, lanes: list[Lane], told: str, *, is_refusal: bool) -> None:
        worst = max(lanes, key=lambda lane: len(lane.told))
        now = time.monotonic()
        for lane in lanes:
            lane.told.append(told)
            self._avoided[lane.queue.broker_name] = now + _AVOID_S
            if is_refusal:
                lane.refusals += 1
            elif lane.away_since is None:
                lane.away_since = now
        self._give_up_in_time(worst, now)
        self.tally.retries += len(lanes)
        log.warning("a send failed, trying again with a fresh route", where=_place(worst), error=told)
        time.sleep(self._options.pause_s(len(worst.told)))
        for topic in {lane.queue.topic for lane in lanes}:
            try:
                self._cluster.route(topic, fresh=True)
            except (NetError, ClientError) as error:
                log.warning("the route of a topic cannot be asked for, keeping the old one", error=str(error))

    def _give_up_in_time(self, lane: Lane, now: float) -> None:
        """CannotWrite when a request was refused too often, or its broker is away for too long."""
        count = len(lane.told)
        if count <= self._options.retries:
            return
        hint = ""
        if lane.refusals <= self._options.retries:
            elapsed_ms = 0 if lane.away_since is None else (now - lane.away_since) * 1000
            if elapsed_ms < self._options.cluster.broker_wait_ms:
                return
            hint = f"; its broker is away for {elapsed_ms / 1000:.0f} s: start it, or set brokerWait to wait longer"
        shown = list(enumerate(lane.told, 1))
        tries = "; ".join(f"{n}. {text}" for n, text in (shown if count <= _TOLD_MAX else shown[:3] + shown[-3:]))
        raise CannotWrite(f"{_place(lane)}: not stored after {count} tries: {tries}{hint}")

    def _move(self, lane: Lane) -> None:
        """Take a queue of the broker that has not failed for longest."""
        queues = self._cluster.route(lane.queue.topic).writable
        now = time.monotonic()
        failed = {queue: max(now, self._avoided.get(queue.broker_name, 0)) for queue in queues}
        able = [queue for queue in queues if failed[queue] == min(failed.values())]
        if able and lane.queue not in able:
            lane.queue = able[self._lanes.index(lane) % len(able)]
            lane.in_doubt = False


def _place(lane: Lane) -> str:
    rows = lane.waiting[0] if lane.waiting else None
    named = f" ({rows.rows.piece.rows[rows.begin]} and {rows.end - rows.begin - 1} more)" if rows else ""
    return where(lane.queue) + named


def _command(options: WriteOptions, queue: MessageQueue, request: Request) -> Command:
    rows, begin = request.rows, request.begin
    if request.is_batch:
        # The wrapper has no unique key: a 5.3.3 broker would write it over those of the messages.
        body, properties, flag = bytes(rows.batch_body(begin, request.end)), "", 0
        code = RequestCode.SEND_BATCH_MESSAGE
    else:
        body, properties = rows.bodies[begin].as_py(), rows.properties[begin].as_py().decode()
        code, flag = RequestCode.SEND_MESSAGE_V2, int(rows.flags[begin])
    header = SendHeaderV2(
        producer_group=options.group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=int(rows.sys_flags[begin]),
        born_timestamp=wall_clock_ms(),
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=request.is_batch,
        broker_name=queue.broker_name,
    )
    return Command(code, fields=encode_fields(header), body=body)
