"""A member of a group that polls."""

import asyncio

import pytest
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import BadArgument, ClientClosed, ClientError, ConsumerOptions, PollConsumer, StartFrom


def consumer(cluster: FakeCluster, **named) -> PollConsumer:
    options = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=600_000)
    made = PollConsumer(cluster.address, "group", consumer_options=options, **named)
    made.subscribe("T")
    return made


def fill(cluster: FakeCluster, count: int, queue_id: int = 0, start: int = 0) -> None:
    for number in range(start, start + count):
        cluster.broker.put(cluster.queue("T", queue_id), b"%d" % number)


async def polled(member: PollConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.body for message in await member.poll(20_000, count_max=3)]
    return found


async def test_what_was_polled_counts_as_consumed_at_the_next_poll(cluster):
    fill(cluster, 5)
    async with consumer(cluster) as member:
        first = await member.poll(20_000, count_max=3)
        await member._assigned.commit()
        assert cluster.broker.offsets["group", cluster.queue("T")] == 0
        assert [m.body for m in first] == [b"0", b"1", b"2"]
        assert [m.body for m in await member.poll(20_000)] == [b"3", b"4"]
        await member._assigned.commit()
        assert cluster.broker.offsets["group", cluster.queue("T")] == 3
    assert cluster.broker.offsets["group", cluster.queue("T")] == 5  # leaving is the end of the last batch


async def test_without_auto_commit_only_commit_saves_progress(cluster):
    fill(cluster, 3)
    async with consumer(cluster, auto_commit=False) as member:
        await polled(member, 3)
        await member.commit()
        fill(cluster, 2, start=3)
        await polled(member, 2)
        assert member.position(cluster.queue("T")) == 5
    assert cluster.broker.offsets["group", cluster.queue("T")] == 3


async def test_a_poll_without_messages_ends_after_its_time(cluster):
    cluster.create("T")
    member = consumer(cluster)
    async with member:
        assert await member.poll(10) == []
        with pytest.raises(BadArgument, match="count_max=0"):
            await member.poll(count_max=0)
    with pytest.raises(ClientClosed):
        await member.poll(10)


async def test_seek_goes_back_and_forward(cluster):
    fill(cluster, 4)
    queue = cluster.queue("T")
    async with consumer(cluster) as member:
        assert await polled(member, 4) == [b"0", b"1", b"2", b"3"]
        member.seek(queue, 2)
        assert member.position(queue) == 2
        assert await polled(member, 2) == [b"2", b"3"]
        await member.seek_to_begin(queue)
        assert await polled(member, 4) == [b"0", b"1", b"2", b"3"]
        await member.seek_to_end(queue)
        fill(cluster, 1, start=4)
        assert await polled(member, 1) == [b"4"]
        with pytest.raises(BadArgument, match=r"see assignment\(\)"):
            member.seek(cluster.queue("T", 9), 0)


async def test_a_paused_queue_keeps_its_messages_and_their_order(cluster):
    fill(cluster, 4, queue_id=0)
    fill(cluster, 4, queue_id=1, start=100)
    slow, fast = cluster.queue("T", 0), cluster.queue("T", 1)
    async with consumer(cluster) as member:
        await until(lambda: all(member.workers[q].process.next_offset == 4 for q in (slow, fast)))
        assert member.position(slow) == 0
        member.pause([slow])
        assert await polled(member, 4) == [b"100", b"101", b"102", b"103"]
        assert await member.poll(10) == []
        member.resume([slow])
        assert await polled(member, 4) == [b"0", b"1", b"2", b"3"]


async def test_pulls_of_a_paused_queue_stay_in_order_when_a_poll_stops_between_them(cluster):
    slow, fast = cluster.queue("T", 0), cluster.queue("T", 1)
    cluster.create("T")
    async with consumer(cluster) as member:
        for start in (0, 1):  # two pulls of each queue, in turn
            fill(cluster, 1, queue_id=0, start=start)
            await until(lambda start=start: member.workers[slow].process.next_offset == start + 1)
            fill(cluster, 1, queue_id=1, start=100 + start)
            await until(lambda start=start: member.workers[fast].process.next_offset == start + 1)
        member.pause([slow])
        assert [m.body for m in await member.poll(20_000, count_max=1)] == [b"100"]
        member.resume([slow])
        assert await polled(member, 3) == [b"0", b"1", b"101"]


async def test_members_share_the_queues_and_hear_of_moves_before_and_after(cluster):
    taken: list = []
    released: list = []
    fill(cluster, 1, queue_id=0)
    fill(cluster, 1, queue_id=1, start=1)

    async def release(queues):
        released.append(queues)
        await first.commit()  # the queues are still ours

    first = consumer(cluster, on_take=taken.append, on_release=release, auto_commit=False)
    async with first:
        assert first.assignment() == [cluster.queue("T", 0), cluster.queue("T", 1)]
        assert taken == [[cluster.queue("T", 0), cluster.queue("T", 1)]]
        await polled(first, 2)
        async with consumer(cluster) as second:
            await until(lambda: len(first.assignment()) == 1)
            await until(lambda: len(second.assignment()) == 1)
            assert sorted(first.assignment() + second.assignment()) == taken[0]
            assert released == [second.assignment()]
            assert cluster.broker.offsets["group", second.assignment()[0]] == 1


async def test_messages_that_were_polled_and_not_processed_come_again_after_an_error(cluster):
    fill(cluster, 3)
    with pytest.raises(ZeroDivisionError):
        async with consumer(cluster) as member:
            await member.poll(20_000, count_max=1)
            await member.poll(20_000, count_max=1)
            raise ZeroDivisionError  # while it processes the second
    assert cluster.broker.offsets["group", cluster.queue("T")] == 1


async def test_without_auto_commit_a_seek_is_progress_after_a_commit_only(cluster):
    fill(cluster, 5)
    queue = cluster.queue("T")
    async with consumer(cluster, auto_commit=False) as member:
        await polled(member, 5)
        await member.commit()
        member.seek(queue, 2)
        await member._assigned.commit()  # as every `commit_ms`, and before queues move
        assert cluster.broker.offsets["group", queue] == 5
        await member.commit()
        assert cluster.broker.offsets["group", queue] == 2
        await member.seek_to_end(queue)
    assert cluster.broker.offsets["group", queue] == 2


async def test_nothing_of_a_new_queue_is_read_before_its_listener_may_seek(cluster):
    cluster.create("T")
    new = cluster.queue("New")
    for number in range(4):
        cluster.broker.put(new, b"%d" % number)

    async def seek(queues):
        await asyncio.sleep(0.05)  # time enough for a pull
        if new in queues:
            member.seek(new, 3)

    member = consumer(cluster, on_take=seek)
    async with member:
        member.subscribe("New")
        assert await polled(member, 1) == [b"3"]


async def test_a_broker_that_fails_does_not_keep_the_other_new_queues_from_being_read(cluster, monkeypatch):
    fill(cluster, 1, queue_id=0)
    taken: list = []
    member = consumer(cluster, on_take=taken.append)
    first_offset = member._assigned._first_offset

    async def fails_once(queue):
        if queue.queue_id == 1 and not taken:
            raise ClientError("the broker restarts")
        return await first_offset(queue)

    monkeypatch.setattr(member._assigned, "_first_offset", fails_once)
    async with member:
        assert await polled(member, 1) == [b"0"]
        await until(lambda: taken == [[cluster.queue("T", 0)], [cluster.queue("T", 1)]])


@pytest.mark.parametrize("option", [{"orderly": True}, {"batch_count_max": 3}, {"enable_trace": True}])
def test_options_about_listeners_are_refused(option):
    with pytest.raises(BadArgument, match="about listeners"):
        PollConsumer("127.0.0.1:1", "g", consumer_options=ConsumerOptions(**option))
