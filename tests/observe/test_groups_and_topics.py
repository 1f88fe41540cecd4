"""Views of topics, groups and messages, asked of a running broker."""

from __future__ import annotations

import pytest
from tests.replication.cluster import running_cluster

from twinlog.base.clock import wall_clock_ms
from twinlog.client import Admin, BadArgument, MessageQueue, Outgoing, Producer
from twinlog.observe.groups.backlogs import SERIES_MAX, Backlog, Backlogs
from twinlog.observe.groups.group_progress import Progress, QueueProgress, all_members, all_progress, group_progress
from twinlog.observe.groups.offset_reset import NEWEST, OFFSET, OLDEST, TIME, ResetTarget, apply, preview
from twinlog.observe.messages.messages import consumptions, messages_between
from twinlog.observe.topics import kind_of, permission_text, topic_view
from twinlog.wire.bodies import SubscriptionGroupConfig

QUEUE = MessageQueue("Orders", "broker-a", 0)


@pytest.fixture
async def admin(tmp_path):
    """A broker with ten messages in Orders, of which the group G has consumed four."""
    async with running_cluster(tmp_path) as cluster:
        broker = await cluster.start("master")
        async with Admin(cluster.names) as admin, Producer(cluster.names, "shop") as producer:
            await admin.create_topic("Orders", queues=1)
            await admin.save_group(broker.address, SubscriptionGroupConfig(group_name="G"))
            for number in range(10):
                await producer.send(Outgoing("Orders", f"{number}"))
            await admin.queue_calls.commit("G", QUEUE, 4)
            admin.broker = broker
            yield admin


async def test_a_topic_and_a_group_are_seen_with_their_numbers(admin):
    view = await topic_view(admin, "Orders")
    assert (view.held, view.stored, list(view.brokers)) == (10, 10, ["broker-a"]) and not view.silent
    assert [queue.high for queue in view.brokers["broker-a"].queues] == [10]
    (progress,) = [one for one in await all_progress(admin, admin.broker.address) if one.topic == "Orders"]
    assert (progress.group, progress.behind, progress.consumed) == ("G", 6, 4)
    assert await group_progress(admin, admin.broker.address, "G") == [progress]
    assert not (await all_members(admin, [admin.broker.address, "127.0.0.1:1"], "G")).clients


@pytest.mark.parametrize(
    ("target", "becomes", "change"),
    [
        (ResetTarget(NEWEST), 10, 6),
        (ResetTarget(OLDEST), 0, -4),
        (ResetTarget(TIME, timestamp_ms=1), 0, -4),
        (ResetTarget(OFFSET, queue=QUEUE, offset=7), 7, 3),
    ],
)
async def test_a_reset_does_what_its_preview_showed(admin, target, becomes, change):
    (row,) = await preview(admin, "G", "Orders", target)
    assert (row.committed, row.becomes, row.change) == (4, becomes, change)
    assert await admin.queue_calls.committed("G", QUEUE) == 4
    assert await apply(admin, "G", "Orders", target) == {QUEUE: becomes}
    assert await admin.queue_calls.committed("G", QUEUE) == becomes


async def test_a_reset_outside_of_the_queue_is_refused_with_its_bounds(admin):
    with pytest.raises(BadArgument, match="offset 11 is not in queue 0, which has 0 to 10"):
        await preview(admin, "G", "Orders", ResetTarget(OFFSET, queue=QUEUE, offset=11))
    with pytest.raises(BadArgument, match="has no queue"):
        await preview(admin, "G", "Orders", ResetTarget(OFFSET, queue=MessageQueue("Orders", "other", 0)))


async def test_messages_are_found_by_time_the_newest_first(admin):
    now_ms = wall_clock_ms()
    found = await messages_between(admin, "Orders", now_ms - 60_000, now_ms + 1_000, 3)
    assert [message.body for _, message in found.messages] == [b"9", b"8", b"7"] and found.is_cut
    every = await messages_between(admin, "Orders", now_ms - 60_000, now_ms + 1_000, 100)
    assert len(every.messages) == 10 and not every.is_cut
    assert not (await messages_between(admin, "Orders", 0, 1_000, 100)).messages
    (one,) = await consumptions(admin, *every.messages[-1])
    assert (one.group, one.is_consumed, one.retries, one.dead_letter) == ("G", True, (), None)
    assert not (await consumptions(admin, *every.messages[0]))[0].is_consumed


async def test_backlogs_name_a_master_that_is_silent_and_stay_bounded(admin):
    backlogs = Backlogs()
    await backlogs.round(admin, {"broker-a": admin.broker.address, "gone": "127.0.0.1:1"}, 1_000)
    assert backlogs.latest.behind("G") == 6 and backlogs.latest.silent == ("gone",)
    assert backlogs.series("G", "Orders", 0) == [(1_000, 6)]
    row = {"b": Progress("G", "T", (QueueProgress(0, 5, 2, 2, 0),), 0.0)}
    for number in range(SERIES_MAX + 10):
        backlogs.take(Backlog(number, {(f"G{number}", "T"): row}))
    assert not backlogs.series("G", "Orders", 0) and backlogs.series(f"G{SERIES_MAX}", "T", 0)


def test_names_of_kinds_and_permissions():
    assert [kind_of(one, "C", "b") for one in ("T", "%RETRY%g", "%DLQ%g", "TBW102", "C", "b")] == [
        *("normal", "retry", "dead letters", "system", "system", "system")
    ]
    assert (permission_text(6), permission_text(4), permission_text(0)) == ("read, write", "read", "none")
