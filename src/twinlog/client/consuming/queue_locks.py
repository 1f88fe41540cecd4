"""Locks that brokers keep for orderly consumption, so that one member of a group reads a queue."""

import time
from collections.abc import Iterable

from twinlog.client.errors import REQUEST_FAILURES
from twinlog.client.routing.session import Session
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import LockBatchRequest, LockBatchResponse, MessageQueue, decode_body, encode_body
from twinlog.wire.codes import RequestCode

log = get_logger(__name__)
_LOCK_MS_MAX = 30_000  # we stop trusting a lock earlier than the broker does (60 s)


class QueueLocks:
    """The locks of one consumer. A lock is trusted for 30 s after it was last granted."""

    def __init__(self, group: str, session: Session) -> None:
        self._group, self._session = group, session
        self._until: dict[MessageQueue, float] = {}

    def until(self, queue: MessageQueue) -> float:
        """The time of the monotonic clock until which the lock may be trusted; 0 without a lock."""
        return self._until.get(queue, 0.0)

    async def acquire(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock or renew `queues`; returns those that are locked for us now."""
        granted: set[MessageQueue] = set()
        for address, asked in self._by_master(queues).items():
            before = time.monotonic()
            try:
                answer = await self._session.ask(address, RequestCode.LOCK_BATCH_MQ, {}, self._body(asked))
            except REQUEST_FAILURES as error:
                log.warning("queues could not be locked", broker=address, error=str(error))
                continue
            ours = set(decode_body(LockBatchResponse, answer.body).lock_ok_mq_set)
            for queue in asked:
                if queue in ours:
                    self._until[queue] = before + _LOCK_MS_MAX / 1000
                else:
                    self._until.pop(queue, None)
            granted |= ours & set(asked)
        return granted

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        for address, asked in self._by_master(queues).items():
            for queue in asked:
                self._until.pop(queue, None)
            try:
                await self._session.ask(address, RequestCode.UNLOCK_BATCH_MQ, {}, self._body(asked))
            except REQUEST_FAILURES as error:
                log.warning("queues were not unlocked; their locks will expire", broker=address, error=str(error))

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._session.known_route(queue.topic)
            address = route.master_of(queue.broker_name) if route is not None else None
            if address is not None:
                by_address.setdefault(address, []).append(queue)
        return by_address

    def _body(self, queues: list[MessageQueue]) -> bytes:
        client_id = self._session.client_id
        return encode_body(LockBatchRequest(consumer_group=self._group, client_id=client_id, mq_set=queues))
