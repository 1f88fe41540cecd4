"""The messages of one range of a queue as record bytes, pulled from a broker.

Connections may be lost and brokers may move or restart while it runs: what was not answered is asked for again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from twinlog.base.clock import monotonic_ms
from twinlog.client.consuming.pulling import PULL_CODES
from twinlog.client.errors import ClientError, name_of
from twinlog.net.errors import NetError
from twinlog.spark.broker_wait import AwayBrokers, pause_s
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import CannotRead
from twinlog.spark.offsets import where
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.pull_requests import pull_command, pull_frame_maker
from twinlog.spark.reading.brokers.pull_window import Pull, PullWindow
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.remoting import BlockingConnection, Response, connection_to, forget_connection, next_opaque
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import MASTER_ID, RequestCode, ResponseCode

log = get_logger(__name__)
_CHUNK_BYTES = 4 * 1024 * 1024
_FILTERED_STEP = 800  # a broker scans this many entries for one request
_TRIES = 6
_STALL_PAUSE_S = 0.05
_AGAIN_CODES = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
)


class QueueFetch:
    """Pulls one range."""

    def __init__(self, options: ReadOptions, wanted: QueueRange) -> None:
        self._options = options
        self._wanted = wanted
        self._cluster = Cluster(options.cluster, options.read_from)
        step = _FILTERED_STEP if options.is_filtered else options.pull_count
        count_max = options.pull_count if options.is_filtered else None
        self._window = PullWindow(wanted.start, wanted.end, step=step, depth=options.pull_depth, count_max=count_max)
        self._pull_frame = pull_frame_maker(options, wanted)
        self._pulls: dict[int, Pull] = {}
        self._stalled_at: float | None = None
        self._away = AwayBrokers(options.cluster.broker_wait_ms)
        self._refusals = 0  # since the last answer with messages
        self._is_behind = False  # the only broker that answers is a replica without the message
        self._address = ""

    def chunks(self) -> Iterator[bytes]:
        """Record bytes in order, some megabytes at a time."""
        bodies: list[memoryview] = []
        size = failures = 0
        try:
            while not self._window.is_done:
                try:
                    self._exchange(failures)
                    failures = 0
                    if not self._is_behind:
                        self._away.note({}, monotonic_ms())
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
            if self._pulls:  # the answers still to come would be read by the next user
                forget_connection(self._address, self._options.cluster)

    def _exchange(self, failures: int) -> None:
        """Send the pulls that are due, and take the answers that have arrived."""
        queue, cluster = self._wanted.queue, self._options.cluster
        if not self._address or failures:
            self._address = self._cluster.address_of(queue, fresh=failures > 0, attempt=failures)
        connection = connection_to(self._address, cluster)
        pulls = self._window.pulls()
        if pulls:
            for number, pull in zip(self._send(connection, pulls), pulls, strict=True):
                self._pulls[number] = pull
        if not self._pulls:
            return
        for answer in connection.receive(self._options.pull_timeout_ms, RequestCode.PULL_MESSAGE):
            pull = self._pulls.pop(answer.opaque, None)
            if pull is not None:
                self._take(pull, answer)

    def _send(self, connection: BlockingConnection, pulls: list[Pull]) -> list[int]:
        if self._options.cluster.credentials is not None:  # a signature covers every field
            return connection.send([pull_command(self._options, self._wanted, p.offset, p.count) for p in pulls])
        numbers = [next_opaque() for _ in pulls]
        connection.send_frames(
            b"".join(self._pull_frame(number, p.offset, p.count) for number, p in zip(numbers, pulls, strict=True))
        )
        return numbers

    def _take(self, pull: Pull, answer: Response) -> None:
        code, place = answer.code, where(self._wanted.queue, pull.offset)
        if code not in PULL_CODES:
            if code == ResponseCode.TOPIC_NOT_EXIST and self._is_master():
                report_loss(self._options.fail_on_data_loss, place, f"the topic is gone ({answer.remark})")
                self._window.answer(pull, pull.slot.end)
                return
            problem = f"{self._address} refuses to deliver with {name_of(ResponseCode, code)}: {answer.remark}"
            # Flow control, a broker that is shutting down, or a replica that may not be read or does not have the
            # topic yet: try again, with another broker if there is one.
            if code in _AGAIN_CODES:
                self._refusals += 1
                raise CannotRead(problem)
            raise _Refused(f"{place}: {problem}; check the permissions of topic and group, or choose another readFrom")
        next_offset = int(answer.fields.get("nextBeginOffset", pull.offset))
        if code == ResponseCode.PULL_OFFSET_MOVED and next_offset <= pull.offset and not self._is_master():
            self._window.answer(pull, pull.offset)
            self._wait_for_more(pull, place, answer)
            return
        if code == ResponseCode.PULL_OFFSET_MOVED:
            holds = f"{answer.fields.get('minOffset')} to {answer.fields.get('maxOffset')}"
            report_loss(self._options.fail_on_data_loss, place, f"{self._address} holds offsets {holds}")
            # An offset before the queue's first: reading continues there. After its last: nothing more will come.
            self._window.answer(pull, next_offset if next_offset > pull.offset else pull.slot.end)
            return
        if self._window.answer(pull, next_offset, answer.body):
            self._stalled_at, self._refusals, self._is_behind = None, 0, False
        else:
            self._wait_for_more(pull, place, answer)

    def _is_master(self) -> bool:
        queue = self._wanted.queue
        return self._cluster.route(queue.topic).brokers.get(queue.broker_name, {}).get(MASTER_ID) == self._address

    def _wait_for_more(self, pull: Pull, place: str, answer: Response) -> None:
        """The broker does not have the message yet, as a replica that is behind: wait for a short time."""
        now = time.monotonic()
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        if now - self._stalled_at > self._options.pull_timeout_ms / 1000:
            last, limit = answer.fields.get("maxOffset", "?"), self._options.pull_timeout_ms
            problem = f"{self._address} has offsets up to {last} and brought no more in {limit} ms"
            if self._options.read_from == "any" and not self._is_master():
                raise _Behind(f"{place}: {problem}, its master is away")
            if self._options.fail_on_data_loss:
                hint = "is it a replica that is behind? read from the master, or try again"
                raise _Refused(f"{place}: {problem}; {hint}")
            report_loss(False, place, problem)
            self._window.answer(pull, pull.slot.end)
            return
        time.sleep(_STALL_PAUSE_S)

    def _lose_connection(self, error: Exception, failures: int) -> None:
        if self._address:
            forget_connection(self._address, self._options.cluster)
        self._pulls.clear()
        self._window.drop_asked()
        if isinstance(error, _Refused):
            raise error
        if isinstance(error, _Behind):
            self._find_master(error)
            return
        place = where(self._wanted.queue, self._window.at)
        if failures >= _TRIES:
            if self._topic_is_gone():
                report_loss(self._options.fail_on_data_loss, place, f"the topic is gone ({error})")
                self._window.give_up()
                return
            if self._refusals >= _TRIES:
                raise CannotRead(f"{place}: cannot be read after {failures} tries: {error}") from error
            self._away.note({self._wanted.queue.broker_name: f"{place}: {error}"}, monotonic_ms())
        else:
            log.warning("a broker is lost, asking for its route again", where=place, error=str(error))
        time.sleep(pause_s(failures))

    def _find_master(self, error: _Behind) -> None:
        self._address, self._stalled_at, self._is_behind = "", None, True
        self._away.note({self._wanted.queue.broker_name: str(error)}, monotonic_ms())
        with contextlib.suppress(NetError, ClientError):
            self._cluster.route(self._wanted.queue.topic, fresh=True)

    def _topic_is_gone(self) -> bool:
        with contextlib.suppress(NetError, ClientError):
            return bool(self._cluster.lost([self._wanted.queue]))
        return False


class _Refused(CannotRead):
    """A refusal that another try does not change."""


class _Behind(CannotRead):
    """A replica that does not have the messages of its master yet."""
