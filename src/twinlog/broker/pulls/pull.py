"""Pulls: codes 11 and 361.

A pull that finds nothing new, and allows it, is held until a message arrives or its time is up. Then it goes through
all checks again, since topics, groups and settings may have changed, and is answered with what it finds. So does a pull
whose messages are on disk only: a thread reads them first, and the loop goes on meanwhile. And so does one that met a
damaged message while a twin is asked for it; if the twin does not have it soon, the message is left out.
"""

from __future__ import annotations

import re
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.pulls.hold import Hold
from twinlog.broker.pulls.pull_checks import PullRefused, check_pull
from twinlog.net.error_answers import answer_for_error
from twinlog.net.errors import RequestRefused
from twinlog.net.limits import limit_text
from twinlog.store.errors import UnderRepair
from twinlog.store.log.log_access import OnDisk
from twinlog.store.queues.read import ReadStatus
from twinlog.wire.codes import BUSY_REMARK, VERSION, RequestCode, ResponseCode
from twinlog.wire.command import RESPONSE_FLAG
from twinlog.wire.frame import encode_prefix
from twinlog.wire.numbers import Int, Long
from twinlog.wire.values.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from twinlog.broker.context import BrokerContext
    from twinlog.broker.pulls.pull_checks import PullPlan
    from twinlog.net.connection import Answer, Buffer, Handler, Request
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.log.log_access import LogAccess
    from twinlog.store.queues.read import ReadResult

OFFSET_RESET = "OFFSET_RESET"
REPAIR_S_MAX = 3.0  # that a pull waits for damaged messages; clients wait longer for its answer
HOLD_MS_MAX = 3_600_000  # clients ask for 15 to 30 seconds
COUNT_MAX = 1_024  # no client asks for more; a filter examines as many units as messages are asked for
PROPERTY_FILTER_COST = 50  # comparing a tag costs 1; a property filter may have hundreds of terms
HELD_FIELDS_CHARS_MAX = 64 * 1024  # of one pull; a long filter has some thousands

_NUMBERS = ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion")
_ABSENT = ("",) * len(_NUMBERS)
_NUMBER = re.compile(r"(?:\+|(-?))0*([0-9]{1,19})")
_NOT_PARSED = "the pull header does not parse"

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullFields(msgspec.Struct, rename="camel", gc=False):
    """The request header; decoded in C, since a busy consumer sends one of these per batch."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int = 0
    commit_offset: Long = 0
    suspend_timeout_millis: Long = 0
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    twinlog_large_answer: bool = False  # of our own readers of much; Java's clients do not know it


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    pull = PullHandler(ctx)
    return {RequestCode.PULL_MESSAGE: pull.handle, RequestCode.LITE_PULL_MESSAGE: pull.handle}


def read_fields(request: Request) -> PullFields:
    """The pull header; refused when a member is missing or not a number."""
    fields = request.fields or {}
    try:
        pull: PullFields | None = msgspec.convert(fields, PullFields, strict=False)
    except msgspec.ValidationError:
        pull = None
    if pull is not None and "".join(map(fields.get, _NUMBERS, _ABSENT)).isdigit():
        return pull
    try:  # msgspec reads "1e3" as a number, and "007" not: Java does the opposite
        return msgspec.convert(_with_plain_numbers(fields), PullFields, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{_NOT_PARSED}: {error}") from None


def _with_plain_numbers(fields: dict[str, str]) -> dict[str, str]:
    """The same members without plus signs and leading zeros; refused when one is not a decimal number."""
    numbers: dict[str, str] = {}
    for name in _NUMBERS:
        text = fields.get(name)
        if text is not None:
            number = _NUMBER.fullmatch(text)
            if number is None:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{_NOT_PARSED}: {name} is not a number")
            numbers[name] = (number[1] or "") + number[2]
    return {**fields, **numbers}


def header_text(
    code: int,
    remark: str,
    suggested: int,
    next_offset: int | str,
    min_offset: int | str,
    max_offset: int | str,
    topic_sys_flag: int,
    group_sys_flag: int,
    opaque: int | str,
) -> str:
    """The header of an answer as JSON: no member needs escapes. A member may be a place to fill in later."""
    return (
        f'{{"code":{int(code)},"extFields":{{"suggestWhichBrokerId":"{suggested}","nextBeginOffset":"{next_offset}",'
        f'"minOffset":"{min_offset}","maxOffset":"{max_offset}","topicSysFlag":"{topic_sys_flag}",'
        f'"groupSysFlag":"{group_sys_flag}"}},"flag":{RESPONSE_FLAG},"language":"JAVA",'
        f'"opaque":{opaque},"remark":"{remark}","serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
    )


def messages_max(pull: PullFields, conf: BrokerConf) -> int:
    """How many messages the pull may get; the store has limits of its own."""
    return min(max(pull.max_msg_nums, 1), max(COUNT_MAX, conf.store.transfer_count_in_memory))


class PullHandler:
    """Answers pulls, or holds them."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """The answer to a pull that came in; None when it is held."""
        try:
            return self._answer(request, may_hold=True, log=self._ctx.store.log_in_memory())
        except OnDisk:
            return self._answer_from_disk(request)
        except UnderRepair as found:
            return self._answer_after_repair(request, found)

    async def _answer_from_disk(self, request: Request) -> Answer:
        """The answer after a thread has read what the pull asks for; by then, it may be another one."""
        ctx = self._ctx
        try:
            pull = read_fields(request)
            plan = check_pull(ctx, request, pull)
        except PullRefused as refused:
            return request.reply(refused.code, refused.remark, refused.fields)
        await ctx.disk_work.run(request.connection, lambda: self._read(pull, plan, ctx.store.log_on_disk()))
        try:
            return self._answer(request, may_hold=True, log=ctx.store.log_loaded())
        except UnderRepair as found:
            return await self._answer_after_repair(request, found)

    async def _answer_after_repair(self, request: Request, found: UnderRepair) -> Answer:
        """The answer when damaged messages were brought back, or that takes too long."""
        ctx, deadline = self._ctx, monotonic() + REPAIR_S_MAX
        while True:
            await ctx.wait_for_repair(found.physical_offset, deadline - monotonic())
            is_patient = monotonic() < deadline
            try:
                return self._answer(request, may_hold=True, log=ctx.store.log_loaded(), is_patient=is_patient)
            except UnderRepair as another:
                found = another

    def finish(self, hold: Hold, remark: str | None = None) -> None:
        """Answer a pull that was held with what there is now; `remark` is for an answer without messages."""
        request = hold.request
        held_s = max(self._ctx.clock_ms() - hold.since_ms, 0) / 1000
        try:
            answer = self._answer(request, may_hold=False, remark=remark, held_s=held_s)
        except Exception as error:
            answer = answer_for_error(request, error)
        request.connection.send(answer)

    def _read(self, pull: PullFields, plan: PullPlan, log: LogAccess | None, *, is_patient: bool = False) -> ReadResult:
        return self._ctx.store.read(
            pull.topic,
            pull.queue_id,
            pull.queue_offset,
            count_max=messages_max(pull, self._ctx.conf),
            accept=plan.accept,
            accept_record=plan.accept_record,
            log=log,
            is_patient=is_patient,
            is_large=pull.twinlog_large_answer,
        )

    def _answer(
        self,
        request: Request,
        *,
        may_hold: bool,
        remark: str | None = None,
        log: LogAccess | None = None,
        held_s: float = 0.0,
        is_patient: bool = True,
    ) -> Answer:
        """The answer, or None for a pull that is held. When OnDisk or UnderRepair is raised, nothing has changed."""
        ctx = self._ctx
        settings = ctx.settings
        if not ctx.is_master and not settings.replica_reads:
            return request.reply(ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
        pull = read_fields(request)
        try:
            plan = check_pull(ctx, request, pull)
        except PullRefused as refused:
            return request.reply(refused.code, refused.remark, refused.fields)
        topic, queue_id, group = pull.topic, pull.queue_id, pull.consumer_group
        reset = ctx.offsets.take_reset(group, topic, queue_id) if settings.resets_on_server else None
        if reset is not None:
            low, high = ctx.store.min_offset(topic, queue_id), ctx.store.max_offset(topic, queue_id)
            moved = ResponseCode.PULL_OFFSET_MOVED
            return self._reply(request.opaque, plan, moved, OFFSET_RESET, reset, low, high, suggested=0)
        found, code, seconds = self._read_and_commit(pull, plan, log, may_hold=may_hold, is_patient=is_patient)
        wants_to_wait = code == ResponseCode.PULL_NOT_FOUND and may_hold and pull.sys_flag & PULL_SUSPEND
        if not wants_to_wait:
            ctx.stats.rpc.row(request.code, code, not may_hold).took(seconds + held_s)
            remark = remark if code != ResponseCode.SUCCESS else None
            return self._found(request.opaque, pull, plan, found, code, remark)
        limit = self._limit_reached(request)
        if limit is not None:
            return self._found(request.opaque, pull, plan, found, code, limit)
        self._hold(request, pull, plan)
        return None

    def answer_checked(self, code: int, opaque: int, pull: PullFields, plan: PullPlan) -> list[Buffer] | None:
        """The answer to a pull that was checked, and whose queue waits for no reset.

        None, or any error (OnDisk, UnderRepair), means that `handle` must answer it.
        """
        log = self._ctx.store.log_in_memory()
        found, answer_code, seconds = self._read_and_commit(pull, plan, log, may_hold=True, is_patient=True)
        if answer_code == ResponseCode.PULL_NOT_FOUND:
            return None
        self._ctx.stats.rpc.row(code, answer_code).took(seconds)
        return self._found(opaque, pull, plan, found, answer_code)

    def _read_and_commit(
        self, pull: PullFields, plan: PullPlan, log: LogAccess | None, *, may_hold: bool, is_patient: bool
    ) -> tuple[ReadResult, int, float]:
        """What was read, the answer's code, and how long the read took; the group's offsets are noted."""
        ctx = self._ctx
        topic, queue_id, group = pull.topic, pull.queue_id, pull.consumer_group
        started = perf_counter()
        found = self._read(pull, plan, log, is_patient=is_patient and may_hold)
        seconds = perf_counter() - started
        if seconds > ctx.stats.longest_get_s:
            ctx.stats.longest_get_s = seconds
        ctx.offsets.commit_pull(group, topic, queue_id, found.next_offset)
        if may_hold and pull.sys_flag & PULL_COMMIT_OFFSET:
            ctx.offsets.commit(group, topic, queue_id, pull.commit_offset, ctx.clock_ms())
        return found, self._code(found.status, pull.queue_offset), seconds

    def _limit_reached(self, request: Request) -> str | None:
        """The remark for a pull that may not wait and is answered at once; None when it may."""
        ctx, settings = self._ctx, self._ctx.settings
        chars = sum(len(name) + len(value) for name, value in (request.fields or {}).items())
        if chars > HELD_FIELDS_CHARS_MAX:
            return f"{chars} characters of fields: a pull with more than {HELD_FIELDS_CHARS_MAX} does not wait"
        held, own = len(ctx.holds), ctx.holds.count_of(request.connection)
        if own >= settings.holds_per_connection_max:
            key, limit = "maxHeldPullsPerConnection", settings.holds_per_connection_max
            ctx.limits.left_out("a pull did not wait", key, limit)
            return limit_text(f"{own} pulls of this peer wait already", key, limit, "raise it")
        if held < settings.holds_max:
            return None
        key = "maxHeldPulls"
        ctx.limits.left_out("a pull did not wait", key, settings.holds_max)
        remark = limit_text(f"{held} pulls wait already", key, settings.holds_max, "raise it")
        # The peer with the most pulls loses one. If new pulls were refused, all other peers would poll without pause.
        longest = ctx.holds.take_of_largest()
        if longest is None:
            return remark
        self.finish(longest, remark)
        return None

    def _code(self, status: ReadStatus, queue_offset: int) -> int:
        code = _CODES.get(status)
        if code is None:  # an empty queue
            code = ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        trusted = self._ctx.is_master or self._ctx.conf.store.offset_checked_on_replica
        if code == ResponseCode.PULL_OFFSET_MOVED and not trusted:
            # A replica may be behind its master: that must not reset the consumer's offset.
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return code

    def _hold(self, request: Request, pull: PullFields, plan: PullPlan) -> None:
        ctx, now_ms = self._ctx, self._ctx.clock_ms()
        hold_ms = pull.suspend_timeout_millis if ctx.settings.long_polling else ctx.settings.short_polling_ms
        hold_ms = min(hold_ms, HOLD_MS_MAX)
        request.body = request.remark = None  # not needed any more, and they may be large
        deadline_ms = now_ms + hold_ms
        hold = Hold(request, pull.topic, pull.queue_id, pull.queue_offset, deadline_ms, now_ms, plan.wakes)
        hold.since_ms = now_ms
        if plan.accept_record is not None:
            hold.filter_cost = PROPERTY_FILTER_COST
        ctx.holds.hold(hold)

    def _found(
        self,
        opaque: int,
        pull: PullFields,
        plan: PullPlan,
        found: ReadResult,
        code: int,
        remark: str | None = None,
    ) -> list[Buffer]:
        ctx = self._ctx
        suggested = 0
        if ctx.settings.replica_reads:
            suggested = plan.group.which_broker_when_consume_slowly if found.far_behind else plan.group.broker_id
        if code == ResponseCode.SUCCESS:
            ctx.stats.pulls_found += 1
            counter = ctx.stats.gets(pull.topic, pull.consumer_group)
            counter.count += found.count
            counter.bytes += found.size
        else:
            ctx.stats.pulls_missed += 1
        remark, at = remark or found.status.value, found.next_offset
        answer = self._reply(opaque, plan, code, remark, at, found.min_offset, found.max_offset, suggested, found.size)
        return answer + found.buffers if code == ResponseCode.SUCCESS else answer

    def _reply(
        self,
        opaque: int,
        plan: PullPlan,
        code: int,
        remark: str,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        suggested: int,
        body_bytes: int = 0,
    ) -> list[Buffer]:
        """Prefix and header of the answer."""
        body_bytes = body_bytes if code == ResponseCode.SUCCESS else 0
        flags = plan.topic.topic_sys_flag, plan.group.group_sys_flag
        header = header_text(code, remark, suggested, next_offset, min_offset, max_offset, *flags, opaque).encode()
        return [encode_prefix(len(header), body_bytes), header]
