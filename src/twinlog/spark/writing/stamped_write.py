"""Which rows an earlier attempt has stored: the part of an `idempotent` write that asks brokers.

A task does not know whether its rows were written before, by an attempt that failed or a batch that is replayed. So it
asks. Three properties keep that cheap and correct:

* A row's queue follows from its place in the partition, the row itself, and the topic's list of queues. The first row
  of each of the first blocks carries that list, and their stamps are looked up first. A task that finds an older list
  uses it, so each row has the same queue as before. If queues of that list no longer exist, the task fails.
* A queue has one request in flight at a time, so the rows it holds are the first of those meant for it. One lookup
  shows that it holds none of some rows, two that it holds all of them, and a few more how many.
* A message that is found must equal its row. If it differs, the rows came in another order than before, and leaving
  out some of them would lose others.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence

from twinlog.base.system_names import SCHEDULE_TOPIC, TIMER_TOPIC
from twinlog.client.errors import BrokerRefused, ClientError
from twinlog.client.routing.routes import TopicRoute
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import CannotWrite
from twinlog.spark.offsets import where
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.queues import BLOCK_ROWS, layout_text, parse_layout
from twinlog.spark.writing.rows import EncodedRows
from twinlog.spark.writing.send_queue import SendQueue, SendRequest
from twinlog.spark.writing.stamp_lookup import StampLookup, stored_prefix
from twinlog.spark.writing.stamps import LAYOUT_PROPERTY, Stamps
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message

log = get_logger(__name__)
_LAYOUT_BLOCKS_MIN = 64
_brokers_with_index: set[str] = set()  # addresses of brokers that have found a message by its key


def layout_blocks(queues: Sequence[MessageQueue]) -> int:
    """So many blocks of a task carry the list of queues: rows that go to any queue have reached each queue by then."""
    return max(_LAYOUT_BLOCKS_MIN, len(queues))


class StampedWrite:
    """Looks up which rows of one task brokers hold; must be closed."""

    def __init__(self, stamps: Stamps, cluster: Cluster, options: WriteOptions) -> None:
        self._stamps = stamps
        self._cluster = cluster
        self._options = options
        self._lookup = StampLookup(options.cluster)
        self._up_to_date: set[str] = set()

    def close(self) -> None:
        self._lookup.close()

    def queues_of(
        self, topic: str, route: TopicRoute, *, has_delays: bool, has_times: bool
    ) -> tuple[MessageQueue, ...]:
        """The list of queues that this write uses: that of an earlier attempt, if there was one.

        Only a write with delays or times of delivery looks for its rows in the topics where such rows wait: that costs
        as many lookups again, and an account may not read the timers' topic.
        """
        places = (topic, *[SCHEDULE_TOPIC] * has_delays, *[TIMER_TOPIC] * has_times)
        keys = [self._stamps.key(topic, block * BLOCK_ROWS) for block in range(layout_blocks(route.writable))]
        is_begun = False
        for broker_name in sorted({queue.broker_name for queue in route.writable}):
            for stored_in in places:
                for message in self._find(topic, broker_name, stored_in, keys):
                    if message is not None and LAYOUT_PROPERTY in message.properties:
                        return self._adopted(topic, route, message.properties[LAYOUT_PROPERTY])
                    is_begun |= message is not None  # with fewer queues than now, fewer blocks got the list
        return self._adopted(topic, route, "") if is_begun else route.writable

    def _adopted(self, topic: str, route: TopicRoute, text: str) -> tuple[MessageQueue, ...]:
        before = parse_layout(topic, text)
        if before and not set(before) <= set(route.writable):
            route = self._cluster.route_with(topic, before)
        if not before or not set(before) <= set(route.writable):
            raise CannotWrite(
                f"topic {topic}: this batch was begun with the queues {text or 'of another list'}, now there are"
                f" {layout_text(route.writable)}; what the missing queues hold of it is unknown. Bring them back, or"
                " write this batch with idempotent=false, which may store rows twice"
            )
        return before

    def stored(
        self, send_queue: SendQueue, rows: EncodedRows, begin: int, end: int, *, tries: int | None = None
    ) -> int:
        """How many of these rows, all of `send_queue` and in its order, its broker holds already."""
        first, last = self._is_stored(send_queue, rows, [begin, end - 1], tries)
        if not first or last:
            return end - begin if last else 0
        return stored_prefix(end - begin, lambda row: self._is_stored(send_queue, rows, [begin + row], tries)[0])

    def count_stored(self, send_queue: SendQueue, request: SendRequest) -> int:
        """How many rows at the front of a request in doubt are stored; the sender retries if this fails."""
        self._up_to_date.discard(self._address(send_queue.queue))
        return self.stored(send_queue, request.rows, request.begin, request.end, tries=1)

    def check_index(self, send_queue: SendQueue, rows: EncodedRows, row: int) -> None:
        """CannotWrite unless the broker finds a message that it has acknowledged: its index may be switched off."""
        address = self._address(send_queue.queue)
        if address in _brokers_with_index:
            return
        self._up_to_date.discard(address)
        if not self._is_stored(send_queue, rows, [row])[0]:
            raise CannotWrite(
                f"{where(send_queue.queue)}: {address} does not find a message that it has just stored; idempotent=true"
                " needs messageIndexEnable=true in its broker.conf"
            )
        _brokers_with_index.add(address)

    def _is_stored(
        self, send_queue: SendQueue, rows: EncodedRows, wanted: list[int], tries: int | None = None
    ) -> list[bool]:
        topic, broker_name = send_queue.queue.topic, send_queue.queue.broker_name
        keys = [self._stamps.key(topic, int(rows.sequences[row])) for row in wanted]
        found: list[Message | None] = [None] * len(wanted)
        places = [_places(topic, rows, row) for row in wanted]
        for stored_in in dict.fromkeys(place for each in places for place in each):
            some = [n for n, each in enumerate(places) if stored_in in each and found[n] is None]
            answers = self._find(topic, broker_name, stored_in, [keys[n] for n in some], tries) if some else []
            for n, message in zip(some, answers, strict=True):
                found[n] = message
        for row, message in zip(wanted, found, strict=True):
            if message is not None and message.body != rows.plain_bodies[row].as_py():
                raise CannotWrite(
                    f"{where(send_queue.queue, message.queue_offset)} holds another body under the stamp of"
                    f" {rows.piece.rows[row]}: the rows differ from the earlier attempt, or are in another order."
                    " Sort within partitions, or write to a table first and from there to the topic"
                )
        return [message is not None for message in found]

    def _find(
        self, topic: str, broker_name: str, stored_in: str, keys: list[str], tries: int | None = None
    ) -> list[Message | None]:
        wait_s = self._options.cluster.broker_wait_ms / 1000 if tries is None else 0
        limit = time.monotonic() + wait_s
        tries = 1 + self._options.retries if tries is None else tries
        for failures in itertools.count(1):
            try:
                address = self._address(MessageQueue(topic, broker_name, 0))
                if address not in self._up_to_date:
                    self._lookup.wait_until_indexed(address)
                    self._up_to_date.add(address)
                return self._lookup.find(address, stored_in, keys)
            except (NetError, ClientError) as error:
                if failures >= tries and (
                    isinstance(error, BrokerRefused | RequestTimeout) or time.monotonic() >= limit
                ):
                    raise
                log.warning("a lookup failed, trying again with a fresh route", broker=broker_name, error=str(error))
            time.sleep(self._options.pause_s(failures))
            with contextlib.suppress(NetError, ClientError):
                self._cluster.route(topic, fresh=True)
        raise AssertionError("the wait ends")

    def _address(self, queue: MessageQueue) -> str:
        address = self._cluster.route(queue.topic).master_of(queue.broker_name)
        if address is None:
            raise ClientError(f"{where(queue)}: no master is registered, so what it holds is unknown; start it again")
        return address


def _places(topic: str, rows: EncodedRows, row: int) -> tuple[str, ...]:
    """The topics that may hold a row; a time that had passed when a broker received the row is no delay."""
    if rows.timers[row]:
        return TIMER_TOPIC, topic
    return (SCHEDULE_TOPIC,) if rows.delays[row] else (topic,)
