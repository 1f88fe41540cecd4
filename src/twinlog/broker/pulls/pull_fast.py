"""Pulls of busy consumers: those that find something, whose header was decoded and checked before.

What it trades: memory for what `pull` decides again for each pull: the meaning of the header, the checks, the filter.
A pull that equals an earlier one in all but its numbers (`pull_template`) is answered with what was decided then, as
long as nothing has changed that the decision rests on:

    settings, groups               any change drops everything
    topics                         so does a change of one that was pulled from; a new topic changes nothing
    subscription, filter           are looked up for each pull, and must be the same objects

The caches are bounded and none is needed. What is unusual is left to `pull`: a pull that is refused or held, a reset,
records on disk. Reading and answering are the same code for both, and a property test holds both equal, byte for byte.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from twinlog.broker.pulls.pull import PullHandler, header_text, messages_max, read_fields
from twinlog.broker.pulls.pull_checks import check_pull
from twinlog.broker.pulls.pull_template import is_plain, take_numbers
from twinlog.metadata.offsets import row_key
from twinlog.net.connection import Request
from twinlog.net.errors import RequestRefused
from twinlog.store.queues.read import ReadStatus, block_key
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import decode_header
from twinlog.wire.errors import WireError
from twinlog.wire.frame import JSON, PREFIX, encode_prefix
from twinlog.wire.values.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION

if TYPE_CHECKING:
    from collections.abc import Hashable

    from twinlog.broker.context import BrokerContext
    from twinlog.broker.pulls.pull import PullFields
    from twinlog.broker.pulls.pull_checks import PullPlan
    from twinlog.metadata.filters import ConsumerFilter
    from twinlog.net.connection import Buffer, Connection
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.queues.read import ReadResult
    from twinlog.wire.bodies import SubscriptionData

_STARTS = (b'{"code":11,', b'{"code":361,')
_HEADER_BYTES_MAX = 4096  # longer ones are not cached
_PULLS_MAX = 8192  # cached; when there are more, all are dropped
_MISSES_MAX = 2048  # a peer whose headers are never the same gets no further entries
_MISSES = "pull_misses"
_AT_ONCE_MAX = 16  # the connection then handles one itself, and sees whether its turn is over
SUCCESS, FOUND = int(ResponseCode.SUCCESS), ReadStatus.FOUND.value

Texts = tuple[bytes, bytes, bytes, bytes]


class KnownPull:
    """A pull that was decoded and checked; its numbers are set for each one that equals it."""

    __slots__ = (
        "code",
        "commits",
        "count",
        "filter",
        "goes_ahead",
        "header",
        "message_model",
        "plan",
        "pull",
        "row",
        "subscription",
        "wanted",
    )

    def __init__(self, code: int, pull: PullFields, plan: PullPlan, conf: BrokerConf) -> None:
        self.code = code
        self.pull = pull
        self.plan = plan
        self.subscription: SubscriptionData | None = None  # of the heartbeat, unless the pull has its own
        self.message_model = ""
        self.filter: ConsumerFilter | None = None
        self.row = row_key(pull.consumer_group, pull.topic)
        self.commits = bool(pull.sys_flag & PULL_COMMIT_OFFSET)
        self.count = messages_max(pull, conf)
        self.goes_ahead = plan.accept is None and plan.accept_record is None
        # Under which name the store keeps what it has examined; None if each pull is answered on its own.
        self.wanted: Hashable = None
        if not pull.twinlog_large_answer:
            self.wanted = pull.consumer_group if self.goes_ahead else block_key(plan.accept, plan.accept_record)
        flags = plan.topic.topic_sys_flag, plan.group.group_sys_flag
        suggested = plan.group.broker_id if conf.broker.replica_reads else 0
        self.header = header_text(SUCCESS, FOUND, suggested, "%d", "%d", "%d", *flags, "%d").encode()


class FastPull:
    """Takes the pulls it knows from the front of a chunk."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._handler = PullHandler(ctx)
        self._known: dict[Texts, KnownPull] = {}
        self._conf: BrokerConf | None = None
        self._topics: set[str] = set()  # of known pulls
        self._topics_revision = -1
        self._editions = (-1, -1)
        self._allowed = False

    def take(self, connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        """Answer pulls from `at` on until one is unusual or incomplete; returns where that one begins."""
        if not data.startswith(_STARTS, at + PREFIX.size):
            return at
        ctx = self._ctx
        editions = (ctx.topics.edition, ctx.groups.edition)
        if ctx.conf is not self._conf or editions != self._editions:
            self._notice_changes(editions)
        if not self._allowed:
            return at
        for _ in range(_AT_ONCE_MAX):
            if end - at <= PREFIX.size:
                break
            length, header_length = PREFIX.unpack_from(data, at)
            begin, frame_end = at + PREFIX.size, at + 4 + length
            # The header is all of the frame, and JSON: its type is the highest byte of the second number.
            if header_length != length - 4 or header_length > _HEADER_BYTES_MAX or frame_end > end:
                break
            answer = self._answer(connection, data, begin, frame_end)
            if answer is None:
                break
            connection.send(answer)
            at = frame_end
            if connection.is_full:
                break
        return at

    def _notice_changes(self, editions: tuple[int, int]) -> None:
        ctx = self._ctx
        is_same = ctx.conf is self._conf and editions[1] == self._editions[1]
        if not is_same or ctx.topics.revisions.touched(self._topics, self._topics_revision):
            self._forget()
        self._conf, self._editions, self._topics_revision = ctx.conf, editions, ctx.topics.revision

    def _forget(self) -> None:
        ctx = self._ctx
        self._known.clear()
        self._topics.clear()
        self._allowed = ctx.is_master or ctx.settings.replica_reads

    def _answer(self, connection: Connection, data: bytes, begin: int, end: int) -> list[Buffer] | None:
        numbers = take_numbers(data, begin, end)
        if numbers is None:
            return None
        texts, commit_offset, queue_offset, opaque = numbers
        known = self._known.get(texts)
        if known is None:
            known = self._learn(connection, data[begin:end], texts)
        elif not self._is_valid(known):
            del self._known[texts]
            known = self._learn(connection, data[begin:end], texts)
        else:
            connection.attributes.pop(_MISSES, None)
        if known is None:
            return None
        ctx, pull = self._ctx, known.pull
        queue = ctx.store.queues.get(pull.topic, pull.queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        if ctx.offsets.reset_pending_in(known.row, pull.queue_id):
            return None
        try:
            if known.wanted is not None:
                started = perf_counter()
                found = ctx.store.read_ready(queue, queue_offset, known.count, known.wanted, ahead=known.goes_ahead)
                if found is not None:
                    return self._answer_found(known, found, commit_offset, opaque, perf_counter() - started)
            pull.queue_offset, pull.commit_offset = queue_offset, commit_offset
            return self._handler.answer_checked(known.code, opaque, pull, known.plan)
        except Exception:  # `pull` meets it again, and handles it
            return None

    def _answer_found(
        self, known: KnownPull, found: ReadResult, commit_offset: int, opaque: int, seconds: float
    ) -> list[Buffer]:
        """What `PullHandler` notes and answers when messages were found."""
        ctx, pull, size = self._ctx, known.pull, found.size
        stats, offsets, queue_id = ctx.stats, ctx.offsets, pull.queue_id
        offsets.commit_pull_in(known.row, queue_id, found.next_offset)
        if known.commits:
            offsets.commit_in(known.row, queue_id, commit_offset, ctx.clock_ms())
        if seconds > stats.longest_get_s:
            stats.longest_get_s = seconds
        stats.rpc.row(known.code, SUCCESS).took(seconds)
        stats.pulls_found += 1
        counter = stats.gets(pull.topic, pull.consumer_group)
        counter.count += found.count
        counter.bytes += size
        header = known.header % (found.next_offset, found.min_offset, found.max_offset, opaque)
        # Joined at once: dozens of small windows would be written more slowly, and drop out of the caches meanwhile.
        return [b"".join((encode_prefix(len(header), size), header, *found.buffers))]

    def _is_valid(self, known: KnownPull) -> bool:
        """Whether consumer and filter are still what they were when the pull was checked."""
        if known.subscription is None:
            return True
        ctx, pull = self._ctx, known.pull
        online = ctx.clients.consumers.get(pull.consumer_group)
        return (
            online is not None
            and online.subscriptions.get(pull.topic) is known.subscription
            and online.message_model == known.message_model
            and ctx.filters.get(pull.topic, pull.consumer_group) is known.filter
        )

    def _learn(self, connection: Connection, header: bytes, texts: Texts) -> KnownPull | None:
        """Decode and check this pull, and cache it; None when it is unusual."""
        misses = connection.attributes.get(_MISSES, 0)
        if misses >= _MISSES_MAX or not is_plain(header):
            return None
        connection.attributes[_MISSES] = misses + 1
        ctx = self._ctx
        try:
            request = decode_header(header, JSON, Request)
            request.connection = connection
            pull = read_fields(request)
            plan = check_pull(ctx, request, pull)
        except (RequestRefused, WireError):
            return None
        if request.flag:
            return None
        known = KnownPull(request.code, pull, plan, ctx.conf)
        if not pull.sys_flag & PULL_SUBSCRIPTION:
            online = ctx.clients.consumers[pull.consumer_group]
            known.subscription, known.message_model = online.subscriptions[pull.topic], online.message_model
            known.filter = ctx.filters.get(pull.topic, pull.consumer_group)
        if len(self._known) >= _PULLS_MAX:
            self._forget()
        editions = (ctx.topics.edition, ctx.groups.edition)
        if editions == self._editions:  # else this check has created a group
            self._known[texts] = known
            self._topics.add(pull.topic)
        return known
