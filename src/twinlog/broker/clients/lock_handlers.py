"""Locks of orderly consumers (41, 42). A replica answers them too: clients ask it when the master is down."""

from __future__ import annotations

from twinlog.broker.clients.client_limits import check_client_id, check_name
from twinlog.broker.clients.lock_table import ALL_KEY, LockLimits
from twinlog.broker.context import BrokerContext
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.wire.bodies import LockBatchRequest, LockBatchResponse, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command

QUEUES_MAX = 16_384  # in one request: as many as the largest topic has; real clients ask for fewer


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    def full(key: str, queues: int) -> None:
        most = ctx.settings.locks_max if key == ALL_KEY else ctx.settings.group_locks_max
        ctx.limits.left_out(f"{queues} queues were not locked", key, most)

    def lock(request: Request) -> Command:
        body = _read(ctx, request)
        limits = LockLimits(ctx.settings.locks_max, ctx.settings.group_locks_max, full)
        held = ctx.locks.lock(body.consumer_group, body.client_id, body.mq_set, ctx.clock_ms(), limits)
        return request.reply(body=encode_body(LockBatchResponse(lock_ok_mq_set=held)))

    def unlock(request: Request) -> Command:
        body = _read(ctx, request)
        ctx.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.reply()

    return {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: unlock}


def _read(ctx: BrokerContext, request: Request) -> LockBatchRequest:
    body = decode_body(LockBatchRequest, request.body)
    if len(body.mq_set) > QUEUES_MAX:
        remark = f"{len(body.mq_set)} queues in one request, at most {QUEUES_MAX} are allowed; send several requests"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
    check_client_id(ctx, body.client_id)
    check_name("group", body.consumer_group)
    for queue in body.mq_set:
        check_name("topic", queue.topic)
        check_name("broker", queue.broker_name)
    return body
