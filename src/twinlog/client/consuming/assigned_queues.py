"""The queues that one member of a group reads: which ones, from which offset, and a worker for each.

`rebalance` compares the member's share with what it reads now, stops the workers of queues that others take over, and
starts workers for new ones. An orderly consumer reads a queue only while it holds the broker's lock on it.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.consuming.consumer_options import ConsumerOptions, StartFrom
from twinlog.client.consuming.listener import Listener
from twinlog.client.consuming.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.consuming.queue_locks import QueueLocks
from twinlog.client.consuming.queue_worker import QueueWorker, Sink
from twinlog.client.consuming.rebalance import plan_moves
from twinlog.client.errors import REQUEST_FAILURES, BadArgument, BrokerRefused, NoRoute
from twinlog.client.routing.routes import TopicRoute
from twinlog.client.routing.session import Session
from twinlog.client.tasks import wait_for_event
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import ConsumerIdList, MessageQueue, SubscriptionData, decode_body
from twinlog.wire.codes import RequestCode

log = get_logger(__name__)
_RENEW_LOCKS_MS = 20_000
_MISSING_LOCK_MS = 1_000  # while another member still holds a lock
_START_BACK_MS = 30 * 60 * 1000  # StartFrom.TIME without a time


MovesListener = Callable[[list[MessageQueue]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Moves:
    """Functions of the user: `released` before queues go to other members, `taken` before new ones are read."""

    released: MovesListener | None = None
    taken: MovesListener | None = None


class AssignedQueues:
    """The workers of one consumer, by queue."""

    def __init__(
        self,
        group: str,
        session: Session,
        options: ConsumerOptions,
        subscriptions: Mapping[str, SubscriptionData],
        sink: Sink,
        listener: Listener | None = None,
        moves: Moves | None = None,
    ) -> None:
        self.workers: dict[MessageQueue, QueueWorker] = {}
        self.started_ms = 0
        self.is_incomplete = False  # a queue of our share has no worker yet: its lock or its broker was missing
        self._group, self._session, self._options = group, session, options
        self._subscriptions, self._listener, self._sink = subscriptions, listener, sink
        self._moves = moves or Moves()
        self._calls = QueueCalls(session)
        self._locks = QueueLocks(group, session)
        self._offsets = self._offset_store()
        self._renewal_wanted = asyncio.Event()
        self._paused = False  # also queues that come later
        self._missing: set[str] = set()  # subscribed topics without a route, which a warning has named

    def start(self) -> None:
        """Begin to consume what the workers pull."""
        if not self._options.orderly:
            self._sink.start()

    async def close(self) -> None:
        """Stop reading, let running listener calls finish, commit, and release the locks."""
        seconds_max = self._options.close_ms_max / 1000
        await asyncio.gather(*(worker.stop(seconds_max) for worker in self.workers.values()))
        await self._sink.close(seconds_max)
        await self.commit()
        if self._options.needs_locks:
            await self._locks.release(list(self.workers))
        self.workers.clear()

    async def commit(self) -> None:
        """Save the progress of all queues now."""
        await _commit(list(self.workers.values()))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop reading these queues; all, and those that come later, by default."""
        self._paused = self._paused or queues is None
        for worker in self._named(queues):
            worker.pause()

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._paused = self._paused and queues is not None
        for worker in self._named(queues):
            worker.resume()

    def _named(self, queues: Iterable[MessageQueue] | None) -> list[QueueWorker]:
        if queues is None:
            return list(self.workers.values())
        wanted = list(queues)
        missing = [queue for queue in wanted if queue not in self.workers]
        if missing:
            raise BadArgument(f"queue {missing[0]} is not one that this member reads; see assignment()")
        return [self.workers[queue] for queue in wanted]

    # -- sharing the queues --------------------------------------------------------------------

    async def rebalance(self) -> None:
        """Read the member's share of every subscribed topic, and nothing else."""
        self.is_incomplete = False
        for topic in list(self._subscriptions):
            try:
                route = await self._session.find_route(topic)
                self._warn_once(topic, is_missing=route is None)
                if route is not None:
                    await self._move(topic, await self._share(route))
            except REQUEST_FAILURES as error:
                self.is_incomplete = True
                log.warning("a topic could not be rebalanced", topic=topic, error=str(error))
        gone = [queue for queue in self.workers if queue.topic not in self._subscriptions]
        if gone:
            await _tell(self._moves.released, gone)
            await self._release(gone)

    def _warn_once(self, topic: str, *, is_missing: bool) -> None:
        """A subscription to a topic that does not exist is most often a misspelled name; a retry topic comes later."""
        if not is_missing:
            self._missing.discard(topic)
        elif topic not in self._missing and not topic.startswith(RETRY_PREFIX):
            self._missing.add(topic)
            hint = "its messages come once it is created: check the name, or use `twinlog admin updateTopic`"
            log.warning("a subscribed topic does not exist", topic=topic, group=self._group, hint=hint)

    async def _share(self, route: TopicRoute) -> list[MessageQueue]:
        if self._options.broadcasting:
            return list(route.readable)
        share = self._options.allocate(route.readable, await self._members(route), self._session.client_id)
        return [queue for queue in share if queue.topic == route.topic]  # a fixed share has queues of all topics

    async def _members(self, route: TopicRoute) -> list[str]:
        """The client ids of the group, from any of the topic's brokers."""
        names = list(route.brokers)
        random.shuffle(names)
        last: Exception | None = None
        for name in names:
            address = route.address_of(name)
            if address is None:
                continue
            try:
                answer = await self._session.ask(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
                )
            except (BrokerRefused, NetError) as error:
                last = error
                continue
            return decode_body(ConsumerIdList, answer.body).consumer_id_list
        raise last or NoRoute(route.topic, ";".join(self._session.name_servers), "broker")

    async def _move(self, topic: str, share: list[MessageQueue]) -> None:
        held = [queue for queue in self.workers if queue.topic == topic]
        release, take = plan_moves(held, share)
        if release:
            await _tell(self._moves.released, release)
            await self._release(release)
        if self._options.needs_locks and take:
            wanted = len(take)
            take = sorted(await self._locks.acquire(take))
            self.is_incomplete |= len(take) < wanted
        taken, failure = await self._take(take)
        if taken:
            await _tell(self._moves.taken, [worker.queue for worker in taken])
        for worker in taken:  # not before: the listener may seek, and nothing is to be read at another place
            worker.start()
        if release or taken:
            log.info("queues changed", group=self._group, topic=topic, released=len(release), taken=len(taken))
        if failure is not None:
            raise failure

    async def _take(self, queues: Iterable[MessageQueue]) -> tuple[list[QueueWorker], Exception | None]:
        """Workers of new queues that are not started yet, and the error of a broker that ended this early."""
        taken: list[QueueWorker] = []
        for queue in queues:
            try:
                offset, committed = await self._first_offset(queue)
            except REQUEST_FAILURES as error:
                return taken, error
            taken.append(self._add_worker(queue, offset, committed))
        return taken, None

    def _add_worker(self, queue: MessageQueue, offset: int, committed: int | None) -> QueueWorker:
        worker = QueueWorker(
            queue,
            offset,
            self._group,
            self._options,
            session=self._session,
            calls=self._calls,
            store=self._offsets,
            subscription=self._subscriptions[queue.topic],
            listener=self._listener,
            sink=self._sink,
            committed=committed,
        )
        worker.lock_until(self._locks.until(queue))
        worker.paused = self._paused
        self.workers[queue] = worker
        return worker

    async def _release(self, queues: Iterable[MessageQueue]) -> None:
        leaving = [self.workers.pop(queue) for queue in queues]
        await asyncio.gather(*(worker.stop(self._options.close_ms_max / 1000) for worker in leaving))
        await _commit(leaving)
        if self._options.needs_locks and leaving:
            await self._locks.release([worker.queue for worker in leaving])

    # -- offsets -------------------------------------------------------------------------------

    async def _first_offset(self, queue: MessageQueue) -> tuple[int, int | None]:
        """(where to begin in `queue`, what the group has committed there)."""
        committed = await self._offsets.load(queue)
        if committed is not None:
            return committed, committed
        if queue.topic.startswith(RETRY_PREFIX):
            return 0, None
        if self._options.start_from is StartFrom.LAST:
            return await self._calls.max_offset(queue), None
        if self._options.start_from is StartFrom.FIRST:
            return await self._calls.min_offset(queue), None
        start_ms = self._options.start_time_ms or self.started_ms - _START_BACK_MS
        return await self._calls.offset_at(queue, start_ms), None

    def _offset_store(self) -> OffsetStore:
        if not self._options.broadcasting:
            return RemoteOffsets(self._calls, self._group)
        folder = self._options.offsets_directory or Path.home() / ".twinlog" / "offsets"
        instance = self._session.options.instance_name or "default"
        return LocalOffsets(folder / instance / self._group / "offsets.json")

    # -- locks ---------------------------------------------------------------------------------

    def renew_locks_soon(self) -> None:
        """Have `keep_locks` renew now: a new master has no locks yet, and ours must be there before another's."""
        self._renewal_wanted.set()

    async def keep_locks(self) -> None:
        """Renew the locks of all queues until cancelled."""
        renewed = set(self.workers)
        while True:
            is_missing = any(queue not in renewed for queue in self.workers)
            await wait_for_event(self._renewal_wanted, _MISSING_LOCK_MS if is_missing else _RENEW_LOCKS_MS)
            try:
                renewed = await self._locks.acquire(list(self.workers))
            except REQUEST_FAILURES as error:
                renewed = set()
                log.warning("queue locks could not be renewed", group=self._group, error=str(error))
            for queue, worker in self.workers.items():
                worker.lock_until(self._locks.until(queue))


async def _tell(listener: MovesListener | None, queues: list[MessageQueue]) -> None:
    """Call a function of the user; its error is logged, since the queues move in any case."""
    if listener is None:
        return
    try:
        result = listener(list(queues))
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        log.error("the listener for moved queues failed", exc_info=error)


async def _commit(workers: list[QueueWorker]) -> None:
    """Save the progress of these workers; what a broker does not take is logged and stays for the next commit."""
    results = await asyncio.gather(*(worker.commit() for worker in workers), return_exceptions=True)
    for worker, result in zip(workers, results, strict=True):
        if isinstance(result, REQUEST_FAILURES):
            log.warning("an offset was not committed", topic=worker.queue.topic, error=str(result))
        elif isinstance(result, BaseException):
            raise result
