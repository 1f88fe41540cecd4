"""Consumes messages of many queues at the same time, and hands failed ones back for a retry."""

import asyncio
from typing import TYPE_CHECKING

from twinlog.client.consuming.listener import Listener
from twinlog.client.routing.session import Failures, Session
from twinlog.client.tasks import TaskSet
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.headers import SendBackHeader
from twinlog.wire.message import Message

if TYPE_CHECKING:
    from twinlog.client.consuming.queue_worker import QueueWorker

log = get_logger(__name__)
_AGAIN_SECONDS = 5.0  # before a message is tried here again because its broker did not take it back


class ConsumeCrew:
    """A fixed number of tasks that take messages in the order in which they were pulled."""

    def __init__(self, group: str, session: Session, listener: Listener, retries_max: int, broadcasting: bool) -> None:
        self._group, self._session, self._listener = group, session, listener
        self._retries_max = retries_max if retries_max >= 0 else None  # None: what the group is set up with
        self._broadcasting = broadcasting
        self._work: asyncio.Queue[tuple[QueueWorker, Message, int]] = asyncio.Queue()
        self._tasks = TaskSet()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, size: int) -> None:
        for i in range(size):
            self._tasks.keep(self._consume, f"consume {i}")

    async def close(self, seconds_max: float) -> None:
        """Let the messages in hand finish; the others were never taken."""
        while not self._work.empty():
            self._work.get_nowait()
        try:
            async with asyncio.timeout(seconds_max):
                await self._idle.wait()
        except TimeoutError:
            log.warning("listeners are still at work; their messages will come again", busy=self._busy)
        await self._tasks.close()

    def put(self, worker: "QueueWorker", message: Message) -> None:
        self._work.put_nowait((worker, message, worker.process.generation))

    async def give_back(self, queue: MessageQueue, message: Message, delay_level: int) -> None:
        """Ask the queue's broker to deliver `message` again later (or, below 0, to dead-letter it)."""
        header = SendBackHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.properties.get(names.ORIGIN_MESSAGE_ID) or message.offset_message_id,
            origin_topic=message.topic,
            max_reconsume_times=self._retries_max,
        )
        await self._session.ask_broker(queue, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def _consume(self) -> None:
        while True:
            worker, message, generation = await self._work.get()
            self._busy += 1
            self._idle.clear()
            try:
                await self._consume_one(worker, message, generation)
            except Exception:
                self._again_later(worker, message, generation)  # else its queue's progress would stop here
                raise
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _consume_one(self, worker: "QueueWorker", message: Message, generation: int) -> None:
        if worker.stopped or generation != worker.process.generation:
            return  # its new owner gets it
        verdict = await self._listener.call(message)
        if not verdict.ok and not await self._disposed(worker, message, verdict.delay_level):
            self._again_later(worker, message, generation)
            return
        worker.finished(message, generation)

    async def _disposed(self, worker: "QueueWorker", message: Message, delay_level: int) -> bool:
        """Whether a failed message is somebody else's care now."""
        if self._broadcasting:
            log.warning("a broadcast message failed; there is no retry", id=message.message_id)
            return True
        try:
            await self.give_back(worker.queue, message, delay_level)
        except Failures as error:
            log.warning("a message was not taken back; it is tried here again", id=message.message_id, error=str(error))
            return False
        return True

    def _again_later(self, worker: "QueueWorker", message: Message, generation: int) -> None:
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._put_again, worker, message, generation)

    def _put_again(self, worker: "QueueWorker", message: Message, generation: int) -> None:
        message.reconsume_times += 1
        self._work.put_nowait((worker, message, generation))
