"""The messages of one range of a queue, over the wire: exactly those, in order, or an error that says where."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from twinlog.base.clock import monotonic_ms
from twinlog.client.consuming.pulling import pull_header, subscription_of
from twinlog.client.errors import ClientError, name_of
from twinlog.net.errors import NetError
from twinlog.spark.broker_wait import Absences, pause_s
from twinlog.spark.cluster import MASTER_ID, Cluster
from twinlog.spark.errors import BadRecord, CannotRead, DataLoss
from twinlog.spark.offsets import where
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.pull_window import Pull, PullWindow
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.spark.reading.decode import Decoder
from twinlog.spark.remoting import Answer, BlockingConnection, connection_to, forget_connection, next_opaque
from twinlog.spark.schema import Columns
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import StopReason
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command, encode_header
from twinlog.wire.fields import encode_fields
from twinlog.wire.filter_expression import parse_tags
from twinlog.wire.frame import encode_prefix

log = get_logger(__name__)
_CHUNK_BYTES = 4 * 1024 * 1024
_FILTERED_STEP = 800  # as many entries as a broker looks at for one request
_TRIES = 6
_STALL_PAUSE_S = 0.05
_OPAQUE, _OFFSET, _COUNT = 1_900_000_001, 9_000_000_000_000_000_001, 1_900_000_002


def read_queue(options: ReadOptions, columns: Columns, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
    """The rows of `wanted`."""
    tags = parse_tags(options.expression)
    decoder = Decoder(columns, broker_name=wanted.queue.broker_name, inflates=options.inflates, tags=tags)
    order = _Order(wanted, dense=not options.is_filtered, fails=options.fail_on_data_loss)
    for chunk in _Fetch(options, wanted).chunks():
        for records in scan(chunk, 0, len(chunk), 0, check_crc=options.checks_crc, check_offset=False):
            if records.stop is not None and records.stop.reason is not StopReason.END:
                reason = records.stop.reason.value
                hint = "look at the broker's log with `twinlog store verify`, or choose offsets behind it"
                raise BadRecord(
                    f"{where(wanted.queue, order.next)}: the broker sent a damaged record: {reason}; {hint}"
                )
            yield from decoder.decode(order.checked(decoder.unwrap(records)))
    order.finish()


class _Order:
    """Sees to it that every message of the range arrives once."""

    def __init__(self, wanted: QueueRange, *, dense: bool, fails: bool) -> None:
        self._wanted = wanted
        self._dense = dense
        self._fails = fails
        self.next = wanted.start

    def checked(self, records: ScannedRecords) -> ScannedRecords:
        """The records that belong to the range and were not seen before."""
        offsets = records.queue_offset
        if not len(offsets):
            return records
        count = len(offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        if first == self.next and last == first + count - 1 and last < self._wanted.end and _ascends(offsets):
            self.next = last + 1
            return records
        keep = (offsets >= self.next) & (offsets < self._wanted.end)
        keep[1:] &= offsets[1:] > _running_max(offsets)[:-1]
        for offset in offsets[keep].tolist() if self._dense else ():
            if offset != self.next:
                self._lost(self.next, offset)
            self.next = offset + 1
        if not self._dense and keep.any():
            self.next = int(offsets[keep][-1]) + 1
        return records.select(keep)

    def finish(self) -> None:
        if self._dense and self.next < self._wanted.end:
            self._lost(self.next, self._wanted.end)

    def _lost(self, begin: int, end: int) -> None:
        tell_loss(self._fails, where(self._wanted.queue, begin), f"the messages before offset {end} are not there")


def tell_loss(fails: bool, place: str, what: str) -> None:
    """Raise DataLoss, or only say what is missing, as failOnDataLoss wants it."""
    if fails:
        raise DataLoss(place, what)
    log.warning("messages are lost and are left out", where=place, what=what)


def _ascends(offsets: np.ndarray) -> bool:
    return bool((offsets[1:] - offsets[:-1] == 1).all())


def _running_max(offsets: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(offsets)


class _Fetch:
    """One range under way: connections may be lost and brokers may move while it lasts."""

    def __init__(self, options: ReadOptions, wanted: QueueRange) -> None:
        self._options = options
        self._wanted = wanted
        self._cluster = Cluster(options.cluster, options.read_from)
        step = _FILTERED_STEP if options.is_filtered else options.pull_count
        count_max = options.pull_count if options.is_filtered else None
        self._window = PullWindow(wanted.start, wanted.end, step=step, depth=options.pull_depth, count_max=count_max)
        self._request = _request_maker(options, wanted)
        self._asked: dict[int, Pull] = {}
        self._stalled_at: float | None = None
        self._absences = Absences(options.cluster.broker_wait_ms)
        self._refusals = 0  # since the last answer that brought something
        self._is_behind = False  # the only broker that answers is a replica without the message
        self._address = ""

    def chunks(self) -> Iterator[bytes]:
        """Record bytes in order, some megabytes at a time."""
        bodies: list[memoryview] = []
        size = failures = 0
        try:
            while not self._window.is_done:
                try:
                    self._turn(failures)
                    failures = 0
                    if not self._is_behind:
                        self._absences.note({}, monotonic_ms())
                except (NetError, ClientError, CannotRead) as error:
                    failures = 0 if isinstance(error, _Behind) else failures + 1
                    self._lose_connection(error, failures)
                for body in self._window.take():
                    bodies.append(body)
                    size += len(body)
                if size >= _CHUNK_BYTES:
                    yield b"".join(bodies)
                    bodies, size = [], 0
            if size:
                yield b"".join(bodies)
        finally:
            if self._asked:  # nobody will read the answers that are still to come
                forget_connection(self._address, self._options.cluster)

    def _turn(self, failures: int) -> None:
        """Send what may be sent, and take in what has arrived."""
        queue, cluster = self._wanted.queue, self._options.cluster
        if not self._address or failures:
            self._address = self._cluster.address_of(queue, fresh=failures > 0, attempt=failures)
        connection = connection_to(self._address, cluster)
        pulls = self._window.pulls()
        if pulls:
            for number, pull in zip(self._send(connection, pulls), pulls, strict=True):
                self._asked[number] = pull
        if not self._asked:
            return
        for answer in connection.receive(self._options.pull_timeout_ms, RequestCode.PULL_MESSAGE):
            pull = self._asked.pop(answer.opaque, None)
            if pull is not None:
                self._take(pull, answer)

    def _send(self, connection: BlockingConnection, pulls: list[Pull]) -> list[int]:
        if self._options.cluster.credentials is not None:  # a signature covers every field
            return connection.send([_pull_command(self._options, self._wanted, p.offset, p.count) for p in pulls])
        numbers = [next_opaque() for _ in pulls]
        connection.send_frames(
            b"".join(self._request(number, p.offset, p.count) for number, p in zip(numbers, pulls, strict=True))
        )
        return numbers

    def _take(self, pull: Pull, answer: Answer) -> None:
        code, place = answer.code, where(self._wanted.queue, pull.offset)
        if code not in _PULL_CODES:
            if code == ResponseCode.TOPIC_NOT_EXIST and self._is_master():
                tell_loss(self._options.fail_on_data_loss, place, f"the topic is gone ({answer.remark})")
                self._window.answer(pull, pull.slot.end)
                return
            told = f"{self._address} refuses to deliver with {name_of(ResponseCode, code)}: {answer.remark}"
            # Flow control, a broker that is shutting down, or a replica that may not be read or has not heard of the
            # topic yet: try again, elsewhere.
            if code in _AGAIN_CODES:
                self._refusals += 1
                raise CannotRead(told)
            raise _Refused(f"{place}: {told}; check the permissions of topic and group, or choose another readFrom")
        next_offset = int(answer.fields.get("nextBeginOffset", pull.offset))
        if code == ResponseCode.PULL_OFFSET_MOVED and next_offset <= pull.offset and not self._is_master():
            self._window.answer(pull, pull.offset)
            self._wait_for_more(pull, place, answer)
            return
        if code == ResponseCode.PULL_OFFSET_MOVED:
            holds = f"{answer.fields.get('minOffset')} to {answer.fields.get('maxOffset')}"
            tell_loss(self._options.fail_on_data_loss, place, f"{self._address} holds offsets {holds}")
            # Below the queue's beginning reading goes on there; above its end there is nothing more to come.
            self._window.answer(pull, next_offset if next_offset > pull.offset else pull.slot.end)
            return
        if self._window.answer(pull, next_offset, answer.body):
            self._stalled_at, self._refusals, self._is_behind = None, 0, False
        else:
            self._wait_for_more(pull, place, answer)

    def _is_master(self) -> bool:
        queue = self._wanted.queue
        return self._cluster.route(queue.topic).brokers.get(queue.broker_name, {}).get(MASTER_ID) == self._address

    def _wait_for_more(self, pull: Pull, place: str, answer: Answer) -> None:
        """The broker does not have the message yet: a replica may be behind. Give it a little time."""
        now = time.monotonic()
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        if now - self._stalled_at > self._options.pull_timeout_ms / 1000:
            last = answer.fields.get("maxOffset", "?")
            told = f"{self._address} has offsets up to {last} and brought no more in {self._options.pull_timeout_ms} ms"
            if self._options.read_from == "any" and not self._is_master():
                raise _Behind(f"{place}: {told}, its master is away")
            if self._options.fail_on_data_loss:
                raise _Refused(f"{place}: {told}; is it a replica that is behind? read from the master, or try again")
            tell_loss(False, place, told)
            self._window.answer(pull, pull.slot.end)
            return
        time.sleep(_STALL_PAUSE_S)

    def _lose_connection(self, error: Exception, failures: int) -> None:
        if self._address:
            forget_connection(self._address, self._options.cluster)
        self._asked.clear()
        self._window.drop_asked()
        if isinstance(error, _Refused):
            raise error
        if isinstance(error, _Behind):
            self._look_for_master(error)
            return
        place = where(self._wanted.queue, self._window.at)
        if failures >= _TRIES:
            if self._topic_is_gone():
                tell_loss(self._options.fail_on_data_loss, place, f"the topic is gone ({error})")
                self._window.give_up()
                return
            if self._refusals >= _TRIES:
                raise CannotRead(f"{place}: cannot be read after {failures} tries: {error}") from error
            self._absences.note({self._wanted.queue.broker_name: f"{place}: {error}"}, monotonic_ms())
        else:
            log.warning("a broker is lost, asking for its route again", where=place, error=str(error))
        time.sleep(pause_s(failures))

    def _look_for_master(self, error: _Behind) -> None:
        self._address, self._stalled_at, self._is_behind = "", None, True
        self._absences.note({self._wanted.queue.broker_name: str(error)}, monotonic_ms())
        with contextlib.suppress(NetError, ClientError):
            self._cluster.route(self._wanted.queue.topic, fresh=True)

    def _topic_is_gone(self) -> bool:
        with contextlib.suppress(NetError, ClientError):
            return bool(self._cluster.lost([self._wanted.queue]))
        return False


class _Refused(CannotRead):
    """An answer that asking again does not change."""


class _Behind(CannotRead):
    """A replica that does not have yet what a master had."""


_AGAIN_CODES = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
)
_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def _pull_command(options: ReadOptions, wanted: QueueRange, offset: int, count: int) -> Command:
    subscription = subscription_of(wanted.queue.topic, options.expression)
    header = pull_header(
        options.pull_group, wanted.queue, offset, subscription, count_max=count, send_subscription=True
    )
    return Command(RequestCode.PULL_MESSAGE, fields=encode_fields(header))


def _request_maker(options: ReadOptions, wanted: QueueRange) -> Callable[[int, int, int], bytes]:
    """A function that makes the frame of a pull: all but three numbers of it stays the same."""
    command = _pull_command(options, wanted, _OFFSET, _COUNT)
    command.opaque, command.language = _OPAQUE, "PYTHON"
    text = encode_header(command).replace(b"%", b"%%")
    for mark, name in ((_OPAQUE, b"opaque"), (_OFFSET, b"offset"), (_COUNT, b"count")):
        text = text.replace(b"%d" % mark, b"%(" + name + b")d", 1)

    def make(opaque: int, offset: int, count: int) -> bytes:
        header = text % {b"opaque": opaque, b"offset": offset, b"count": count}
        return encode_prefix(len(header), 0) + header

    return make
