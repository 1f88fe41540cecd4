"""Held pulls: who is woken by what, and when time is up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.broker.hold import CHECK_INTERVAL_MS, Hold, HoldTable
from twinlog.store.dispatch import DispatchRequest
from twinlog.wire.codes import ResponseCode


def hold(queue_offset=0, *, topic="T", queue_id=0, deadline_ms=15_000, wakes=None, connection="c1"):
    request = SimpleNamespace(connection=connection)
    return Hold(request, topic, queue_id, queue_offset, deadline_ms, 0, wakes)


def message(queue_offset, *, topic="T", queue_id=0, tags_code=0, batch_size=1):
    return DispatchRequest(topic, queue_id, 0, 100, tags_code, 0, queue_offset, batch_size=batch_size)


def table_of(*holds):
    table = HoldTable()
    for one in holds:
        table.hold(one)
    return table


def test_a_message_in_its_queue_wakes_a_pull():
    waiting, elsewhere = hold(5), hold(0, queue_id=1)
    table = table_of(waiting, elsewhere)
    assert table.arrived([message(5)]) == [waiting]
    assert list(table) == [elsewhere]


def test_a_message_before_the_wanted_one_does_not_wake():
    table = table_of(hold(6))
    assert table.arrived([message(5)]) == []
    assert table.arrived([message(4, batch_size=3)]) != []


def test_a_filter_decides_who_is_woken():
    red, blue = hold(wakes=lambda m: m.tags_code == 1), hold(wakes=lambda m: m.tags_code == 2)
    table = table_of(red, blue)
    assert table.arrived([message(0, tags_code=3)]) == []
    assert table.arrived([message(1, tags_code=3), message(2, tags_code=2)]) == [blue]
    assert len(table) == 1


def test_a_pull_is_woken_once_by_many_messages():
    waiting = hold()
    assert table_of(waiting).arrived([message(0), message(1), message(2)]) == [waiting]


def test_a_pull_leaves_when_its_time_is_up():
    early, late = hold(deadline_ms=1000), hold(deadline_ms=2000)
    table = table_of(early, late)
    assert table.due(999, lambda topic, queue_id: 0) == []
    assert table.due(1000, lambda topic, queue_id: 0) == [early]
    assert table.due(2000, lambda topic, queue_id: 0) == [late]


def test_a_pull_whose_filter_refused_messages_may_move_past_them_after_a_while():
    waiting = hold(5, wakes=lambda m: False)
    table = table_of(waiting)
    table.arrived([message(5)])
    assert table.due(CHECK_INTERVAL_MS - 1, lambda topic, queue_id: 6) == []
    assert table.due(CHECK_INTERVAL_MS, lambda topic, queue_id: 6) == [waiting]


def test_a_closed_connection_takes_its_pulls_along():
    table = table_of(hold(connection="c1"), hold(connection="c2"), hold(connection="c1", queue_id=3))
    assert table.drop("c1") == 2
    assert table.drop("c1") == 0
    assert len(table) == 1


def test_a_deleted_topic_gives_its_pulls_back():
    kept = hold(topic="Other")
    table = table_of(hold(), kept)
    assert len(table.take_topic("T")) == 1
    assert list(table) == [kept]


async def test_a_peer_with_too_many_held_pulls_is_answered_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.broker.hold.HOLDS_PER_CONNECTION_MAX", 2)
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        await send(client)
        waiting = [asyncio.create_task(pull(client, queueOffset="1", sysFlag="6")) for _ in range(2)]
        while len(broker.context.holds) < 2:
            await asyncio.sleep(0)
        assert (await pull(client, queueOffset="1", sysFlag="6")).code == ResponseCode.PULL_NOT_FOUND
        await send(client)
        assert {(await one).code for one in waiting} == {0}
