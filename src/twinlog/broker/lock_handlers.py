"""Locks of orderly consumers (41, 42). A replica answers them too: clients ask it when the master is down."""

from __future__ import annotations

from twinlog.broker.context import BrokerContext
from twinlog.net.connection import Handler, Request
from twinlog.wire.bodies import LockBatchRequest, LockBatchResponse, decode_body, encode_body
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    def lock(request: Request) -> Command:
        body = decode_body(LockBatchRequest, request.body)
        held = ctx.locks.lock(body.consumer_group, body.client_id, body.mq_set, ctx.clock_ms())
        return request.reply(body=encode_body(LockBatchResponse(lock_ok_mq_set=held)))

    def unlock(request: Request) -> Command:
        body = decode_body(LockBatchRequest, request.body)
        ctx.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return request.reply()

    return {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: unlock}
