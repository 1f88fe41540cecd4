"""What dialogs and pages do without a browser: a reset is what was previewed, unknown is not 0."""

import asyncio
from types import SimpleNamespace

import pytest
from nicegui import Client, ui

from twinlog.client import BadArgument, MessageQueue, PullStatus
from twinlog.dashboard.dialogs import reset_dialog
from twinlog.dashboard.dialogs.group_dialogs import delete_group
from twinlog.dashboard.pages.groups import client_markup, group_row
from twinlog.dashboard.pages.messages import _Search
from twinlog.dashboard.widgets.forms import read_whole
from twinlog.observe.groups.backlogs import SAMPLES_MAX, Backlog, Backlogs
from twinlog.observe.groups.group_progress import GroupMember, Progress, QueueProgress
from twinlog.observe.groups.offset_reset import NEWEST, OLDEST
from twinlog.observe.messages import messages
from twinlog.wire.message import Message
from twinlog.wire.values.message_id import offset_message_id


async def test_a_reset_is_the_one_that_was_previewed_and_is_done_once(monkeypatch):
    """Seen to fail: a choice made while the preview was asked for was done, with the preview of another one."""
    go_on, done = asyncio.Event(), []

    async def preview(admin, group, topic, target):
        await go_on.wait()
        return []

    async def apply(admin, group, topic, target):
        done.append(target.kind)
        return {}

    async def act(context, what, work):
        await work(SimpleNamespace(admin=None))
        return False

    for name, fake in (("preview", preview), ("apply", apply), ("act", act)):
        monkeypatch.setattr(reset_dialog, name, fake)
    with Client(ui.page("/x"), request=None):
        dialog = reset_dialog._ResetDialog(SimpleNamespace(admin=None), "G", ["Orders"], 0)  # type: ignore[arg-type]
        asked = asyncio.create_task(dialog._preview())
        await asyncio.sleep(0)
        dialog._kind.value = OLDEST
        go_on.set()
        await asked
        assert not dialog._apply.enabled and dialog._previewed is None
        await dialog._reset()
        assert done == []
        dialog._kind.value = NEWEST
        await dialog._preview()
        assert dialog._apply.enabled
        await asyncio.gather(dialog._reset(), dialog._reset())
    assert done == [NEWEST], "a button may be pressed twice"


def test_what_nobody_has_asked_for_is_unknown():
    """Seen to fail: it was 0."""
    unknown = group_row("G", None)
    assert {unknown[name] for name in ("behind", "in_flight", "rate", "topics")} == {"unknown"}
    row = {"b": Progress("G", "T", (QueueProgress(0, 5, 2, 2, 0),), 0.0)}
    assert group_row("G", Backlog(1, {("G", "T"): row}))["behind"] == "3"
    assert group_row("G", Backlog(1, {}, silent=("b",)))["behind"] == "unknown"
    said = client_markup(GroupMember("c", "1.2.3.4:5", "JAVA", 1), {"statusTable": {"T": {"pullRT": 1.25}}})
    assert "1.2 ms" in said and "0.0 ms" not in said


@pytest.mark.parametrize("value", [None, "", 0, 2**31, 1.5])
def test_an_emptied_field_is_not_a_number(value):
    """Else a topic would get no queues, and a group no retries."""
    assert read_whole({"n": 3.0}, "n", "queues", 1) == 3
    with pytest.raises(BadArgument, match="queues: give a whole number, at least 1"):
        read_whole({"n": value}, "n", "queues", 1)


async def test_a_group_is_not_called_deleted_when_no_master_was_asked(monkeypatch):
    async def yes(*_, **__):
        return True

    async def act(context, what, work):
        await work(SimpleNamespace(admin=None))

    monkeypatch.setattr("twinlog.dashboard.dialogs.group_dialogs.confirm", yes)
    monkeypatch.setattr("twinlog.dashboard.dialogs.group_dialogs.act", act)
    context = SimpleNamespace(observer=SimpleNamespace(masters=dict))
    with pytest.raises(BadArgument, match="no master answers"):
        await delete_group(context, "G", members=0, behind=None)  # type: ignore[arg-type]


async def test_an_id_with_the_address_of_a_stranger_is_not_asked_for():
    """Whoever opens the page would have the dashboard connect to any address, with a signed request."""
    asked = []

    class Asked:
        async def located_by_unique_key(self, topic, text):
            return []

        async def message_by_offset_id(self, text, topic):
            asked.append(text)
            return Message(topic="T", body=b"", queue_id=3)

    view = SimpleNamespace(brokers=[SimpleNamespace(name="b", address="10.0.0.1:10911")])
    context = SimpleNamespace(admin=Asked(), observer=SimpleNamespace(view=view), query={"topic": "T"})
    search = _Search(context)  # type: ignore[arg-type]
    known = offset_message_id("10.0.0.1", 10911, 5)
    queue, _ = await search._by_id(known)
    assert queue == MessageQueue("T", "b", 3) and asked == [known]
    with pytest.raises(BadArgument, match="no broker of this cluster is"):
        await search._by_id(offset_message_id("10.0.0.9", 22, 5))
    with pytest.raises(BadArgument):
        await search._by_id("nonsense")
    assert asked == [known]


async def test_a_message_found_by_key_has_the_broker_that_gave_it():
    """Its own address is of the master that stored it, maybe years ago: another broker may have it now."""
    rows = [(MessageQueue("T", "b", 1), Message(topic="T", body=b"", store_host=("10.9.9.9", 1)))] * 3

    class Asked:
        async def located_by_key(self, topic, key, count_max):
            return rows

    context = SimpleNamespace(admin=Asked(), query={"topic": "T", "by": "key", "text": "k", "count": "2"})
    found = await _Search(context)._find()  # type: ignore[arg-type]
    assert [queue.broker_name for queue, _ in found.messages] == ["b", "b"] and found.is_cut


class Pulls:
    """A queue of 100 messages of ten bytes each, of which a pull brings one."""

    async def offset_at(self, queue, timestamp_ms, upper=False):
        return 99 if upper else 0

    async def max_offset(self, queue):
        return 100

    async def pull(self, group, queue, offset, wanted, count_max):
        message = Message(topic="T", body=b"0123456789", queue_offset=offset, store_timestamp=1_000 + offset)
        return SimpleNamespace(status=PullStatus.FOUND, next_offset=offset + 1, messages=[message])


async def test_large_messages_are_read_to_the_newest_and_stay_within_memory(monkeypatch):
    """Seen to fail: after 64 pulls the rest of the queue was not read, and what was found was called the newest."""

    async def route(topic):
        return SimpleNamespace(readable=[MessageQueue("T", "b", number) for number in range(3)])

    admin = SimpleNamespace(session=SimpleNamespace(route=route), queue_calls=Pulls())
    found = await messages.messages_between(admin, "T", 0, 10_000, 100)  # type: ignore[arg-type]
    assert found.messages[0][1].queue_offset == 99 and len(found.messages) == 100 and found.is_cut
    monkeypatch.setattr(messages, "BYTES_MAX", 45)
    few = await messages.messages_between(admin, "T", 0, 10_000, 100)  # type: ignore[arg-type]
    assert [one.queue_offset for _, one in few.messages] == [99, 99, 99, 98] and few.is_cut


def test_backlogs_of_many_groups_stay_small():
    backlogs, row = Backlogs(), {"b": Progress("G", "T", (), 0.0)}
    for number in range(SAMPLES_MAX + 10):
        backlogs.take(Backlog(number, {("G", "T"): row}))
    assert len(backlogs.series("G", "T", 0)) == SAMPLES_MAX
