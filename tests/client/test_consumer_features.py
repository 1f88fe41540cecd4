"""What a push consumer can do beyond one message per call: lists, pauses, hooks."""

import contextlib

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    BadArgument,
    ConsumerOptions,
    Message,
    PartlyConsumed,
    PushConsumer,
    StartFrom,
    allocate_by_config,
)
from twinlog.wire.codes import RequestCode


def consumer(cluster: FakeCluster, listener, **options) -> PushConsumer:
    settings = ConsumerOptions(start_from=StartFrom.FIRST, retry_pause_ms=1, **options)
    made = PushConsumer(cluster.address, "group", listener, consumer_options=settings)
    made.subscribe("T")
    return made


def fill(cluster: FakeCluster, count: int, queue_id: int = 0, start: int = 0) -> None:
    for number in range(start, start + count):
        cluster.broker.put(cluster.queue("T", queue_id), b"%d" % number)


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_listener_of_lists_gets_what_has_arrived_of_one_queue(cluster, threaded):
    calls: list[list[bytes]] = []

    async def listen(messages: list[Message]) -> None:
        calls.append([message.body for message in messages])

    def listen_here(messages: list[Message]) -> None:
        calls.append([message.body for message in messages])

    fill(cluster, 7)
    async with consumer(cluster, listen_here if threaded else listen, batch_count_max=3, concurrency=1):
        await until(lambda: sum(map(len, calls)) == 7)
    assert calls == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert cluster.broker.offsets["group", cluster.queue("T")] == 7


async def test_messages_after_the_consumed_ones_of_a_list_go_back_to_the_broker(cluster):
    got: list[bytes] = []

    async def listen(messages: list[Message]) -> None:
        got.extend(message.body for message in messages)
        raise PartlyConsumed(2, delay_level=5)

    fill(cluster, 4)
    async with consumer(cluster, listen, batch_count_max=4):
        await until(lambda: len(cluster.broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 2)
    back = cluster.broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert [request.fields["delayLevel"] for request in back] == ["5", "5"]
    assert got == [b"0", b"1", b"2", b"3"]
    assert cluster.broker.offsets["group", cluster.queue("T")] == 4


async def test_in_order_a_list_continues_with_the_first_message_that_was_not_consumed(cluster):
    calls: list[list[bytes]] = []

    async def listen(messages: list[Message]) -> None:
        calls.append([message.body for message in messages])
        if len(calls) == 1:
            raise PartlyConsumed(1)

    fill(cluster, 3)
    async with consumer(cluster, listen, batch_count_max=3, orderly=True):
        await until(lambda: len(calls) == 2)
    assert calls == [[b"0", b"1", b"2"], [b"1", b"2"]]


@pytest.mark.parametrize("kind", ["coroutine", "thread", "orderly"])
async def test_a_paused_consumer_gets_nothing_and_then_everything_in_order(cluster, kind):
    got: list[bytes] = []

    async def listen(message: Message) -> None:
        got.append(message.body)

    def listen_here(message: Message) -> None:
        got.append(message.body)

    made = consumer(cluster, listen_here if kind == "thread" else listen, concurrency=1, orderly=kind == "orderly")
    fill(cluster, 2)
    async with made:
        await until(lambda: len(got) == 2)
        made.pause()
        fill(cluster, 3, start=2)
        fill(cluster, 1, queue_id=1, start=9)
        await until(lambda: made.workers[cluster.queue("T")].process.next_offset >= 3)  # the held pull was answered
        assert len(got) == 2
        made.resume()
        await until(lambda: len(got) == 6)
    assert [body for body in got if body != b"9"] == [b"0", b"1", b"2", b"3", b"4"]
    assert cluster.broker.offsets["group", cluster.queue("T")] == 5


async def test_single_queues_can_be_paused_and_a_strange_one_cannot(cluster):
    got: list[bytes] = []

    async def listen(message: Message) -> None:
        got.append(message.body)

    made = consumer(cluster, listen)
    cluster.create("T")
    async with made:
        made.pause([cluster.queue("T", 0)])
        fill(cluster, 1, queue_id=0)
        fill(cluster, 1, queue_id=1, start=7)
        await until(lambda: got)
        assert got == [b"7"]
        made.resume([cluster.queue("T", 0)])
        await until(lambda: got == [b"7", b"0"])
        with pytest.raises(BadArgument, match="not one that this member reads"):
            made.pause([cluster.queue("T", 5)])


async def test_a_member_with_a_fixed_share_reads_only_that(cluster):
    async def listen(message: Message) -> None: ...

    cluster.create("T")
    mine = [cluster.queue("T", 1), cluster.queue("Other", 0)]
    async with consumer(cluster, listen, allocate=allocate_by_config(mine)) as made:
        assert made.assignment() == [cluster.queue("T", 1)]


@pytest.mark.parametrize("threaded", [False, True])
async def test_hooks_surround_a_listener_call_and_a_broken_one_does_no_harm(cluster, threaded, caplog):
    seen: list[str] = []

    @contextlib.contextmanager
    def note(call):
        seen.append("before")
        yield
        seen.append(f"after {call.group} {call.messages[0].body.decode()} {call.ok} {type(call.error).__name__}")

    def broken(call):
        raise RuntimeError("this hook is broken")

    def fail(message: Message) -> None:
        seen.append("listener")
        raise ValueError("not now")

    async def fail_later(message: Message) -> None:
        fail(message)

    fill(cluster, 1)
    async with consumer(cluster, fail if threaded else fail_later, hooks=[broken, note]):
        await until(lambda: cluster.broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK))
    assert seen == ["before", "listener", "after group 0 False ValueError"]
    assert "a hook failed" in caplog.text
