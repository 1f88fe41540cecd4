"""Requests of brokers to a push consumer: rebalance, reset offsets, report its state, consume one message now."""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener
from twinlog.client.consuming.pulling import inflate
from twinlog.client.consuming.queue_worker import QueueWorker, restore_topic
from twinlog.client.routing.session import Session
from twinlog.net.connection import Handler, Request
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, ResetOffsetBody, SubscriptionData, decode_body
from twinlog.wire.codes import VERSION_NAME, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.java_json.fastjson import dumps
from twinlog.wire.message import decode_message

log = get_logger(__name__)


class Consumer(Protocol):
    """What the requests need of a push consumer."""

    group: str
    session: Session
    settings: ConsumerOptions
    subscriptions: dict[str, SubscriptionData]
    listener: Listener | None
    consume_type: str

    @property
    def started_ms(self) -> int: ...
    @property
    def workers(self) -> Mapping[MessageQueue, QueueWorker]: ...
    def rebalance_soon(self) -> None: ...


class PushRequests:
    """Answers the requests of brokers for one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _members_changed(self, request: Request) -> None:
        self._consumer.rebalance_soon()

    def _reset(self, request: Request) -> None:
        for queue, offset in decode_body(ResetOffsetBody, request.body).offset_table.items():
            worker = self._consumer.workers.get(queue)
            if worker is not None:
                log.info("offset reset", topic=queue.topic, queue=queue.queue_id, offset=offset)
                worker.jump(offset)

    def _status(self, request: Request) -> Command:
        topic = (request.fields or {}).get("topic")
        offsets = {q: w.process.commit_offset for q, w in self._consumer.workers.items() if q.topic == topic}
        return request.reply(body=dumps({"consumerTable": {}, "messageQueueTable": offsets}))

    def _running_info(self, request: Request) -> Command:
        consumer = self._consumer
        if (request.fields or {}).get("consumerGroup") != consumer.group:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"this client is in group {consumer.group}")
        now = time.monotonic()
        status = {}
        for topic, meter in (consumer.listener.meters if consumer.listener is not None else {}).items():
            good, bad, spent_ms = meter.rates(now)
            status[topic] = {
                "consumeFailedMsgs": meter.failed_total,
                "consumeFailedTPS": bad,
                "consumeOKTPS": good,
                "consumeRT": spent_ms,
                "pullRT": 0.0,
                "pullTPS": 0.0,
            }
        info = {
            "mqPopTable": {},
            "mqTable": {queue: _queue_info(worker) for queue, worker in consumer.workers.items()},
            "properties": {
                "PROP_CLIENT_VERSION": VERSION_NAME,
                "PROP_CONSUMEORDERLY": "true" if consumer.settings.orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
                "PROP_CONSUME_TYPE": consumer.consume_type,
                "PROP_NAMESERVER_ADDR": ";".join(consumer.session.name_servers),
                "PROP_THREADPOOL_CORE_SIZE": str(consumer.settings.concurrency),
            },
            "statusTable": status,
            "subscriptionSet": list(consumer.subscriptions.values()),
            "userConsumerInfo": {},
        }
        return request.reply(body=dumps(info))

    async def _consume_directly(self, request: Request) -> Command:
        if self._consumer.listener is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this consumer polls, and has no listener to call")
        message = decode_message(request.body or b"")
        inflate(message, self._consumer.session.options.decompressed_bytes_max)
        restore_topic(message)
        consumed = await self._consumer.listener.call([message])
        result = "CR_SUCCESS" if consumed.ok else "CR_THROW_EXCEPTION" if consumed.error else "CR_LATER"
        answer: dict[str, Any] = {
            "autoCommit": True,
            "consumeResult": result,
            "order": self._consumer.settings.orderly,
            "remark": None if consumed.error is None else f"{type(consumed.error).__name__}: {consumed.error}",
            "spentTimeMills": consumed.spent_ms,
        }
        return request.reply(body=dumps(answer))


def _queue_info(worker: QueueWorker) -> dict[str, Any]:
    process = worker.process
    return {
        "cachedMsgCount": len(process),
        "cachedMsgMaxOffset": process.newest_offset if len(process) else 0,
        "cachedMsgMinOffset": process.commit_offset if len(process) else 0,
        "cachedMsgSizeInMiB": process.bytes >> 20,
        "commitOffset": process.commit_offset,
        "droped": worker.stopped,
        "lastConsumeTimestamp": worker.consumed_at_ms,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": worker.pulled_at_ms,
        "locked": worker.locked_until > time.monotonic(),
        "paused": worker.paused,  # Java does not report it
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }
