"""Sends by the chunk: the path that every usual send takes, in whatever spelling its client writes it.

All frames of a chunk are walked in one loop, appended with one call, and wait together for flush and replicas:

    header         `send_rows` walks the frames, `send_headers` decodes any spelling
    constants      `send_target` has checked their queue before, and has parts of the answer ready
    properties     `send_properties` leaves the text as it is and finds the few values that matter
    row            one form for messages that go to their queue, to a delay level, or to the half messages
    batches        `send_batches` stores those that follow one another together
    answers        `send_answers` writes them as one piece; a oneway has none
    ends           of transactions among them wait in `unhandled_ends` until the answers are written

What it trades: memory for the decisions that `send` makes for each message, and a second form of its rules. The caches
are bounded, a change of settings or topics clears them, and none is needed: what is not cached is decided again. On top
of it, headers that equal the one before in all but three places are not decoded at all (`send_template`).

A frame that is unusual is not touched, and `send` handles it: a topic to be created, a timer, a retry, an error of any
kind. So all error answers are made in `send`. A property test holds both paths equal, byte for byte.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.sends.parking import prepare_half
from twinlog.broker.sends.send_answers import BatchPlace, RecordPlace, Unanswered, answers, batch_answers
from twinlog.broker.sends.send_batches import BatchSends
from twinlog.broker.sends.send_properties import SendProperties
from twinlog.broker.sends.send_rows import FRAME_BYTES_MIN, SendRows
from twinlog.broker.sends.send_signed import SignedFrom, SignedSends
from twinlog.broker.sends.send_target import Targets
from twinlog.broker.sends.send_template import KnownHeaders
from twinlog.broker.sends.unhandled_ends import UnhandledEnds
from twinlog.store.log.append import Draft, PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.wire.codes import RequestCode
from twinlog.wire.frame import JSON, PREFIX, frame_span
from twinlog.wire.sends.binary_sends import BinarySends
from twinlog.wire.values.topic_bits import WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinlog.broker.context import BrokerContext
    from twinlog.broker.sends.pending_sends import WriteAnswer
    from twinlog.net.connection import Buffer, Connection
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.log.append_run import Row

P = TypeVar("P", RecordPlace, BatchPlace)

_PULL = b'{"code":11,'  # the begin of a busy consumer's frames, which need no closer look
_BATCH = b'{"code":320,'  # the begin of a Java producer's batches


class FastSend:
    """Takes the frames it understands from the front of a chunk; a connection calls `finish` after each chunk."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._topics = ctx.topics
        self._targets = Targets(ctx)
        self._headers = KnownHeaders()
        self._binary = BinarySends()
        self._signed = None if ctx.gate is None else SignedSends(ctx.gate)
        self._accounts_edition = -1
        self._conf: BrokerConf | None = None
        self._topics_edition = self._topics_revision = -1
        self._allowed = self._waits = False
        self._ends = UnhandledEnds(ctx)
        self._connection: Connection | None = None  # whose chunk is handled now
        rpc = ctx.stats.rpc  # code 10, which has the same meaning, counts as 310
        self._sent, self._sent_batches = rpc.row(RequestCode.SEND_MESSAGE_V2), rpc.row(RequestCode.SEND_BATCH_MESSAGE)
        self._batches = BatchSends(ctx, self._targets, self._binary)
        ends = self._ends if ctx.gate is None else None
        self._rows = SendRows(self._targets, self._new_properties(), self._binary, ends)
        # A plug-in around the store sees every message, one by one.
        self._append_run = ctx.store.append_run if type(ctx.store) is MessageStore else lambda host, rows: []

    def take(self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        """Handle frames from `at` on until one is unusual or incomplete; returns where that one begins."""
        ctx = self._ctx
        if self._ends.waiting:  # of a chunk that was not finished: its answers could not be written
            self._handle_ends()
        if ctx.conf is not self._conf or self._topics.edition != self._topics_edition:
            self._notice_changes()
        if not self._allowed or not ctx.guard.is_valid or data.startswith(_PULL, at + PREFIX.size):
            return at
        signed, self._connection = None, connection
        if self._signed is not None:
            signed = self._signed_from(connection.peer[0])
        while end - at > FRAME_BYTES_MIN:
            begin, self._rows.stopped_at_batch = at, data.startswith(_BATCH, at + PREFIX.size)
            if self._rows.stopped_at_batch:
                at = self._take_batches(connection, data, at, end, out, signed)
            if at == begin:
                self._rows.stopped_at_batch = False
                at = self._take_messages(connection, data, at, end, out, signed)
                if self._rows.stopped_at_batch:
                    at = self._take_batches(connection, data, at, end, out, signed)
            if at == begin or not self._rows.stopped_at_batch:
                break
        if self._ends.waiting and frame_span(data, at, end) is not None:
            self._handle_ends()  # before that frame, of whatever kind it is
        return at

    def finish(self) -> None:
        """After a chunk's answers are written: handle what could wait for that, and publish what was appended."""
        self._handle_ends()
        self._ctx.publish_appends()

    def _handle_ends(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ends.handle(connection)

    def _signed_from(self, source: str) -> SignedFrom | None:
        """The check of signatures for a peer's sends; None for an address that need not sign."""
        gate, signed = self._ctx.gate, self._signed
        assert gate is not None and signed is not None
        if gate.edition != self._accounts_edition:
            self._accounts_edition = gate.edition
            signed.clear()
        return None if gate.is_trusted(source) else SignedFrom(signed, source)

    def _take_messages(
        self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer], signed: SignedFrom | None
    ) -> int:
        rows: list[Row] = []
        sends: list[Unanswered] = []
        if signed is None:
            begin = self._headers.take(data, at, end, rows, sends, self._rows.levels)
        else:
            begin = signed.sends.take(data, at, end, rows, sends, signed.source)
        if end - begin > FRAME_BYTES_MIN:
            number = len(rows)
            begin, first = self._rows.take(data, begin, end, rows, sends, signed), begin
            if len(rows) > number:
                self._learn(data, first, rows[number], sends[number], signed)
        if not rows:
            return begin
        if self._rows.levels:
            for level in self._rows.levels:
                self._ctx.wake_delay_level(level)
            self._rows.levels.clear()
        started = perf_counter()
        places = self._append_run(connection.peer, rows)
        if len(places) < len(rows):
            places = self._append_rest(connection.peer, rows, places)
            if len(places) < len(rows):  # `send` handles the first one that was not stored
                self._rows.stopped_at_batch = False
                begin = sends[len(places) - 1][3] if places else at
                self._ends.drop_after(begin)
                if not places:
                    return at
        if self._waits:
            self._answer_when_safe(connection, answers, sends, places, len(places), started, out)
        else:
            if answered := answers(sends, places, PutStatus.PUT_OK):  # nothing, if all of them are oneway
                out.append(answered)
            seconds = perf_counter() - started
            self._ctx.stats.put_times.took(seconds, len(places))
            self._sent.took(seconds, len(places))
        return begin

    def _take_batches(
        self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer], signed: SignedFrom | None
    ) -> int:
        batches, sends = self._batches.decode(data, at, end, signed, waits=self._waits)
        if not batches:
            return at
        started = perf_counter()
        places = self._batches.store(connection.peer, batches)
        if len(places) < len(batches):  # `send` handles the first one that was not stored
            self._rows.stopped_at_batch = False
            if not places:
                return at
        count = sum(len(place[0]) for place in places) // 8
        self._answer_when_safe(connection, batch_answers, sends, places, count, started, out)
        return sends[len(places) - 1][3]

    def _learn(self, data: bytes, at: int, row: Row, send: Unanswered, signed: SignedFrom | None) -> None:
        """Cache the template of a frame that fits none, unless it has a binary header or is a half message."""
        if row[0] is HALF_TOPIC or data[at + 4] != JSON:
            return
        header = data[at + PREFIX.size : send[3] - len(row[2])]
        if signed is None:
            self._headers.learn(header, row, send[0], is_oneway=send[1] is None)
        elif row[0] is send[0].topic:  # signed sends to a delay level are decoded
            signed.sends.learn(header, row, send[0], signed.source, is_oneway=send[1] is None)

    # -- storing and answering -----------------------------------------------------------------

    def _answer_when_safe(
        self,
        connection: Connection,
        written: Callable[[list[Unanswered], list[P], PutStatus, str | None], bytes],
        sends: list[Unanswered],
        places: list[P],
        count: int,
        started: float,
        out: list[Buffer],
    ) -> None:
        """Answer sends whose messages were stored, now or later.

        Those of a chunk wait together, for the last one that wants an answer.
        """
        pending = self._ctx.pending_sends
        put_times, rpc = self._ctx.stats.put_times, self._sent if written is answers else self._sent_batches
        requests = len(places)

        def write_later(status: PutStatus) -> None:
            took()
            connection.send(written(sends, places, status, pending.remark(status)))

        def took() -> None:
            seconds = perf_counter() - started
            put_times.took(seconds, count)
            rpc.took(seconds, requests)

        status = self._hold(sends, places, write_later) if self._waits else PutStatus.PUT_OK
        if status is not None:
            remark = None if status is PutStatus.PUT_OK else pending.remark(status)
            if answered := written(sends, places, status, remark):
                out.append(answered)
            took()

    def _hold(
        self, sends: list[Unanswered], places: Sequence[RecordPlace | BatchPlace], write_later: WriteAnswer
    ) -> PutStatus | None:
        """The status of these sends if it is final now; None when `write_later` gets it."""
        pending = self._ctx.pending_sends
        for (_, opaque, _, _), (begin, _, size) in reversed(list(zip(sends, places, strict=False))):
            if opaque is not None:
                begin = begin if isinstance(begin, int) else int.from_bytes(begin[:8], "big")
                return pending.hold(begin + size, write_later)
        pending.ask_for_flush()
        return PutStatus.PUT_OK

    def _append_rest(self, born_host: tuple[str, int], rows: list[Row], places: list[RecordPlace]) -> list[RecordPlace]:
        """`places` and those of the rows after them that could be stored.

        `append_run` stopped at a row that it does not take, most often because the next part of the segment begins.
        """
        while len(places) < len(rows):
            topic, queue_id, body, properties, born, flag, sys_flag, retries, code, keys, uniq_key = rows[len(places)]
            found = code, keys, uniq_key
            draft = Draft(topic, queue_id, body, properties, born_host, born, flag, sys_flag, retries, found=found)
            appended = self._ctx.store.append(draft)
            if appended.status is not PutStatus.PUT_OK:
                break
            places.append((appended.physical_offset, appended.queue_offset, appended.size))
            if len(places) < len(rows):
                places += self._append_run(born_host, rows[len(places) :])
        return places

    def _notice_changes(self) -> None:
        """Drop what was cached under other settings or topics; a topic that nobody has sent to changes nothing."""
        ctx, topics = self._ctx, self._topics
        if ctx.conf is not self._conf or topics.revisions.touched(self._targets.topics, self._topics_revision):
            self._clear_caches()
        self._topics_edition, self._topics_revision = topics.edition, topics.revision

    def _clear_caches(self) -> None:
        """Start with empty caches under the settings of now."""
        ctx = self._ctx
        self._conf = ctx.conf
        settings = ctx.settings
        self._waits = ctx.pending_sends.anything_waits
        self._allowed = ctx.is_master and not settings.send_accepted_from_ms and bool(settings.permission & WRITE)
        self._targets.clear()
        self._headers.clear()
        if self._signed is not None:
            self._signed.clear()
        self._rows.properties = self._new_properties()

    def _new_properties(self) -> SendProperties:
        ctx, settings = self._ctx, self._ctx.settings
        return SendProperties(
            settings,
            waits=self._waits,
            levels=range(1, ctx.delay_level_max + 1 if len(ctx.put_hooks) == 1 else 1),
            halves=ctx.prepare is prepare_half and not settings.transactions_rejected,
        )
