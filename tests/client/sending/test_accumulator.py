"""The accumulator with a broker that is a list; then a producer with it, against the fake cluster."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.virtual_time import VirtualLoop

from twinlog.client import (
    BadArgument,
    BadMessage,
    BrokerRefused,
    ClientClosed,
    Outgoing,
    Producer,
    ProducerOptions,
    SendResult,
    SendStatus,
)
from twinlog.client.sending.accumulator import Accumulator, may_share_a_batch
from twinlog.client.sending.draft import batch_item
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode

QUEUE = MessageQueue("T", "broker-a", 0)


class Requests:
    """Takes what the accumulator sends, and stores it in the order of arrival."""

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.sent: list[list[bytes]] = []
        self.at_ms: list[int] = []
        self.stored: list[bytes] = []
        self.gate = gate

    def accumulator(self, **options) -> Accumulator:
        ids = itertools.count()
        return Accumulator(
            ProducerOptions(auto_batch=True, **options),
            lambda message: batch_item(message, f"ID{next(ids)}", 1000),
            self.alone,
            self.together,
        )

    async def alone(self, message, queue, timeout_ms):
        return await self._store([message], ["alone"])

    async def together(self, items, queue, timeout_ms):
        return await self._store([item.message for item in items], [item.message_id for item in items])

    async def _store(self, messages, ids):
        bodies = [message.body for message in messages]
        self.sent.append(bodies)
        self.at_ms.append(round(asyncio.get_running_loop().time() * 1000))
        if self.gate is not None:
            await self.gate.wait()
        at = len(self.stored)
        self.stored += bodies
        places = ",".join(f"P{at + i}" for i in range(len(bodies)))
        return SendResult(SendStatus.OK, ",".join(ids), QUEUE, at, places)


def run(work) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()


def test_sends_of_ten_milliseconds_leave_together_and_each_has_its_own_result():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()
        results = await asyncio.gather(*(accumulator.send(Outgoing("T", b"%d" % i), None, None) for i in range(5)))
        assert (requests.sent, requests.at_ms) == ([[b"0", b"1", b"2", b"3", b"4"]], [10])
        assert [(each.message_id, each.queue_offset, each.offset_message_id) for each in results] == [
            (f"ID{i}", i, f"P{i}") for i in range(5)
        ]

    run(work)


def test_a_group_that_is_large_enough_leaves_at_once():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator(batch_bytes_max=10)
        await asyncio.gather(*(accumulator.send(Outgoing("T", b"1234"), None, None) for _ in range(7)))
        assert [len(bodies) for bodies in requests.sent] == [3, 3, 1]
        assert requests.at_ms == [0, 0, 10]

    run(work)


@pytest.mark.parametrize(
    "other",
    [
        Outgoing("U", b"x"),
        Outgoing("T", b"x", tags="a"),
        Outgoing("T", b"x", wait_stored=False),
    ],
)
def test_other_topics_tags_and_wait_rules_are_other_groups(other):
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()
        messages = [Outgoing("T", b"0"), other, Outgoing("T", b"1")]
        await asyncio.gather(*(accumulator.send(message, None, None) for message in messages))
        assert sorted(requests.sent) == [[b"0", b"1"], [b"x"]]

    run(work)


def test_a_fixed_queue_and_a_timeout_of_its_own_are_other_groups():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()
        places = [(None, None), (QUEUE, None), (None, 50), (QUEUE, None)]
        sends = (accumulator.send(Outgoing("T", b"%d" % i), *place) for i, place in enumerate(places))
        await asyncio.gather(*sends)
        assert sorted(requests.sent) == [[b"0"], [b"1", b"3"], [b"2"]]

    run(work)


@pytest.mark.parametrize(
    "message",
    [
        Outgoing("T", b"x", delay_level=3),
        Outgoing("T", b"x", delay_ms=3),
        Outgoing("T", b"x", deliver_at_ms=3),
        Outgoing("T", b"x", system_properties={"DELAY": "3"}),
        Outgoing("T", b"x", system_properties={"TIMER_DELAY_SEC": "3"}),
        Outgoing("%RETRY%g", b"x"),
        Outgoing("T", b"x", system_properties={"PGROUP": "g"}),
        Outgoing("T", b"x", system_properties={"MSG_TYPE": "reply"}),
    ],
)
def test_what_no_batch_may_hold_is_sent_alone_and_at_once(message):
    async def work():
        requests = Requests()
        assert not may_share_a_batch(message)
        await requests.accumulator().send(message, None, None)
        assert (requests.sent, requests.at_ms) == ([[b"x"]], [0])

    run(work)


def test_a_large_message_does_not_wait_and_does_not_overtake_its_group():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator(batch_bytes_max=10)
        messages = [Outgoing("T", b"small"), Outgoing("T", b"much too large"), Outgoing("T", b"next")]
        sends = [asyncio.ensure_future(accumulator.send(message, QUEUE, None)) for message in messages]
        await asyncio.gather(*sends)
        assert requests.stored == [b"small", b"much too large", b"next"]
        assert requests.at_ms == [0, 0, 10]

    run(work)


def test_above_the_total_limit_messages_are_sent_alone_until_there_is_room():
    async def work():
        gate = asyncio.Event()
        requests = Requests(gate)
        accumulator = requests.accumulator(batch_total_bytes_max=8, batch_hold_ms=1)
        held = [asyncio.ensure_future(accumulator.send(Outgoing("T", b"1234"), None, None)) for _ in range(2)]
        await asyncio.sleep(0.005)
        alone = asyncio.ensure_future(accumulator.send(Outgoing("T", b"5678"), None, None))
        await asyncio.sleep(0)
        assert requests.sent == [[b"1234"] * 2, [b"5678"]]
        gate.set()
        await asyncio.gather(*held, alone)
        after = [accumulator.send(Outgoing("T", b"again"), None, None) for _ in range(2)]
        await asyncio.gather(*after)
        assert requests.sent[2:] == [[b"again"] * 2]
        assert accumulator._held_bytes == 0

    run(work)


def test_a_unique_key_with_a_comma_stays_whole_in_its_result():
    async def work():
        accumulator = Requests().accumulator()
        sends = [Outgoing("T", b"x", system_properties={"UNIQ_KEY": key}) for key in ("a,b", "c")]
        sent = await asyncio.gather(*(accumulator.send(message, None, None) for message in sends))
        assert [result.message_id for result in sent] == ["a,b", "c"]

    run(work)


def test_an_error_reaches_every_sender_of_the_batch():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()

        async def refuse(items, queue, timeout_ms):
            raise BrokerRefused(320, 14, "no disk", "broker")

        accumulator._send_together = refuse
        sends = [accumulator.send(Outgoing("T", b"x"), None, None) for _ in range(3)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in results] == [BrokerRefused] * 3
        assert accumulator._held_bytes == 0

    run(work)


def test_a_bad_message_fails_alone():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()
        bad = Outgoing("T", b"x", properties={"a": "\x02"})
        sends = [accumulator.send(message, None, None) for message in (Outgoing("T", b"1"), bad, Outgoing("T", b"2"))]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[1], BadMessage)
        assert requests.sent == [[b"1", b"2"]]

    run(work)


def test_a_cancelled_send_leaves_its_group():
    async def work():
        requests = Requests()
        accumulator = requests.accumulator()
        sends = [asyncio.ensure_future(accumulator.send(Outgoing("T", b"%d" % i), None, None)) for i in range(3)]
        await asyncio.sleep(0)
        sends[1].cancel()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert requests.sent == [[b"0", b"2"]]
        assert [results[0].queue_offset, results[2].queue_offset] == [0, 1]
        assert accumulator._held_bytes == 0

    run(work)


def test_close_sends_what_is_held_and_refuses_more():
    async def work():
        gate = asyncio.Event()
        requests = Requests(gate)
        accumulator = requests.accumulator(batch_hold_ms=30_000)
        sends = [asyncio.ensure_future(accumulator.send(Outgoing("T", b"x"), None, None)) for _ in range(2)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(accumulator.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await accumulator.send(Outgoing("T", b"y"), None, None)
        gate.set()
        await closing
        await asyncio.gather(*sends)
        assert (requests.stored, requests.at_ms) == ([b"x", b"x"], [0])

    run(work)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.sampled_from(["", "a"]), st.sampled_from([None, QUEUE]), st.integers(0, 4)),
        max_size=40,
    ),
    st.integers(1, 60),
    st.integers(1, 200),
)
def test_nothing_is_lost_doubled_or_reordered_within_a_group(sends, batch_bytes_max, total):
    async def work():
        requests = Requests()
        accumulator = requests.accumulator(batch_bytes_max=batch_bytes_max, batch_total_bytes_max=total)
        tasks, by_group = [], {}
        for number, (size, tags, queue, pause_ms) in enumerate(sends):
            body = b"%04d" % number + b"." * size
            by_group.setdefault((tags, queue), []).append(body)
            tasks.append(asyncio.ensure_future(accumulator.send(Outgoing("T", body, tags=tags), queue, None)))
            await asyncio.sleep(pause_ms / 1000)
        results = await asyncio.gather(*tasks)
        await accumulator.close()
        for number, result in enumerate(results):
            assert requests.stored[result.queue_offset].startswith(b"%04d" % number)
        assert len(requests.stored) == len(sends)
        for bodies in by_group.values():
            assert [body for body in requests.stored if body in bodies] == bodies
        assert accumulator._held_bytes == 0 and not accumulator._groups

    run(work)


# -- with a producer -------------------------------------------------------------------------------

AUTO = ProducerOptions(auto_batch=True, batch_hold_ms=5)


async def test_a_producer_gathers_what_its_tasks_send(cluster):
    cluster.create("T", 1)
    async with Producer(cluster.address, "g", producer_options=AUTO) as producer:
        sent = await asyncio.gather(*(producer.send(Outgoing("T", f"{i}", keys=f"k{i}")) for i in range(20)))
    stored = cluster.broker.queues[cluster.queue("T")]
    assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 1
    assert not cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
    for i, result in enumerate(sent):
        message = stored[result.queue_offset]
        assert (message.body, message.message_id) == (b"%d" % i, result.message_id)
        assert message.offset_message_id == result.offset_message_id


async def test_close_sends_what_a_producer_still_holds(cluster):
    options = ProducerOptions(auto_batch=True, batch_hold_ms=30_000)
    async with Producer(cluster.address, "g", producer_options=options) as producer:
        sends = [asyncio.ensure_future(producer.send(Outgoing("T", "x"))) for _ in range(3)]
        await asyncio.sleep(0)
    assert [each.status for each in await asyncio.gather(*sends)] == [SendStatus.OK] * 3


async def test_a_refused_batch_is_tried_again_as_one(cluster):
    cluster.broker.script(RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY)
    async with Producer(cluster.address, "g", producer_options=AUTO) as producer:
        sent = await asyncio.gather(*(producer.send(Outgoing("T", "x")) for _ in range(3)))
    assert len({result.queue for result in sent}) == 1
    assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 2


@pytest.mark.parametrize(
    "wrong", [{"batch_hold_ms": 0}, {"batch_hold_ms": 30_001}, {"batch_bytes_max": 0}, {"batch_total_bytes_max": 0}]
)
def test_options_outside_javas_limits_are_refused(wrong):
    with pytest.raises(BadArgument, match=next(iter(wrong))):
        ProducerOptions(**wrong)
