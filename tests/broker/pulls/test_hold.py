"""Held pulls: which messages wake which pulls, and when their time is up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.broker.pulls.hold import CHECK_INTERVAL_MS, MESSAGES_PER_ROUND, Hold, HoldTable
from twinlog.broker.pulls.hold_service import ANSWERS_PER_TURN, HoldService
from twinlog.broker.pulls.pull import PROPERTY_FILTER_COST, PullHandler
from twinlog.net.errors import ConnectionLost
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.wire.codes import ResponseCode


def hold(queue_offset=0, *, topic="T", queue_id=0, deadline_ms=15_000, wakes=None, connection="c1"):
    request = SimpleNamespace(connection=connection)
    return Hold(request, topic, queue_id, queue_offset, deadline_ms, 0, wakes)


def message(queue_offset, *, topic="T", queue_id=0, tags_code=0, batch_size=1):
    return DispatchRequest(topic, queue_id, 0, 100, tags_code, 0, queue_offset, batch_size=batch_size)


def woken_by(table, messages, woken_max=100, cost_max=1000):
    table.arrived(messages)
    return table.take_woken(woken_max, cost_max)


def table_of(*holds):
    table = HoldTable()
    for one in holds:
        table.hold(one)
    return table


def test_a_message_in_its_queue_wakes_a_pull():
    waiting, elsewhere = hold(5), hold(0, queue_id=1)
    table = table_of(waiting, elsewhere)
    assert woken_by(table, [message(5)]) == [waiting]
    assert list(table) == [elsewhere]


def test_a_message_before_the_wanted_one_does_not_wake():
    table = table_of(hold(6))
    assert woken_by(table, [message(5)]) == []
    assert woken_by(table, [message(4, batch_size=3)]) != []


def test_a_filter_decides_which_pull_is_woken():
    red, blue = hold(wakes=lambda m: m.tags_code == 1), hold(wakes=lambda m: m.tags_code == 2)
    table = table_of(red, blue)
    assert woken_by(table, [message(0, tags_code=3)]) == []
    assert woken_by(table, [message(1, tags_code=3), message(2, tags_code=2)]) == [blue]
    assert len(table) == 1


def test_a_pull_is_woken_once_by_many_messages():
    waiting = hold()
    assert woken_by(table_of(waiting), [message(0), message(1), message(2)]) == [waiting]


def test_a_pull_leaves_when_its_time_is_up():
    early, late = hold(deadline_ms=1000), hold(deadline_ms=2000)
    table = table_of(early, late)
    assert table.due(999, lambda topic, queue_id: 0) == []
    assert table.due(1000, lambda topic, queue_id: 0) == [early]
    assert table.due(2000, lambda topic, queue_id: 0) == [late]


def test_a_pull_whose_filter_refused_messages_may_move_past_them_after_a_while():
    waiting = hold(5, wakes=lambda m: False)
    table = table_of(waiting)
    woken_by(table, [message(5)])
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


async def test_a_pull_that_may_not_wait_is_answered_at_once_with_the_reason(tmp_path):
    key, count = "maxHeldPullsPerConnection", "2 pulls of this peer"
    async with running_broker(broker_conf(tmp_path, **{key: 2})) as broker, connected(broker) as client:
        await send(client)
        waiting = [asyncio.create_task(pull(client, queueOffset="1", sysFlag="6")) for _ in range(2)]
        while len(broker.context.holds) < 2:
            await asyncio.sleep(0)
        answer = await pull(client, queueOffset="1", sysFlag="6")
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.remark == f"{count} wait already: {key} is 2; raise it"
        assert broker.context.limits.refused == {key: 1}
        await send(client)
        assert {(await one).code for one in waiting} == {0}


async def test_the_peer_with_the_most_pulls_loses_one_when_too_many_wait(tmp_path):
    conf = broker_conf(tmp_path, maxHeldPulls=3)
    async with running_broker(conf) as broker, connected(broker) as greedy, connected(broker) as other:
        await send(greedy)
        waiting = []
        for client in (other, greedy, greedy):
            waiting.append(asyncio.create_task(pull(client, queueOffset="1", sysFlag="6")))
            while len(broker.context.holds) < len(waiting):
                await asyncio.sleep(0)
        late = asyncio.create_task(pull(other, queueOffset="1", sysFlag="6"))
        answer = await waiting.pop(1)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.remark == "3 pulls wait already: maxHeldPulls is 3; raise it"
        assert (len(broker.context.holds), broker.context.limits.refused) == (3, {"maxHeldPulls": 1})
        await send(greedy)
        assert {(await one).code for one in [*waiting, late]} == {0}


async def test_with_a_limit_of_zero_no_pull_waits(tmp_path):
    async with running_broker(broker_conf(tmp_path, maxHeldPulls=0)) as broker, connected(broker) as client:
        await send(client)
        answer = await pull(client, queueOffset="1", sysFlag="6")
        assert answer.remark == "0 pulls wait already: maxHeldPulls is 0; raise it"


@pytest.mark.parametrize(("queue_id", "wakes"), [(0, True), (1, False)])
def test_a_stored_batch_wakes_the_pulls_of_its_queue_only(queue_id, wakes):
    held, batch = hold(1), BatchRequests("T", queue_id, 0, [0, 50], [50, 50], [0, 0], [b"", b""], 0, 0)
    assert woken_by(table_of(held), batch) == ([held] if wakes else [])


def test_a_send_compares_no_pull_and_each_slice_a_bounded_number():
    compared = []
    holds = [hold(wakes=lambda m, n=n: compared.append(n) is not None) for n in range(10)]
    table = table_of(*holds)
    assert table.arrived([message(0)])
    assert compared == []
    for _ in range(3):
        assert table.take_woken(100, 4) == []
    assert (compared, table.has_arrivals) == (list(range(10)), False)


def test_a_slice_ends_when_enough_pulls_are_woken():
    table = table_of(*[hold() for _ in range(10)])
    table.arrived([message(0)])
    assert [len(table.take_woken(4, 1000)) for _ in range(4)] == [4, 4, 2, 0]
    assert (len(table), table.has_arrivals) == (0, False)


def test_messages_that_come_during_a_round_are_shown_to_every_pull_in_the_next_one():
    first, second = hold(wakes=lambda m: m.tags_code == 2), hold(wakes=lambda m: m.tags_code == 2)
    table = table_of(first, second)
    table.arrived([message(0, tags_code=1)])
    assert table.take_woken(100, 1) == []  # the first one was compared
    table.arrived([message(1, tags_code=2)])
    assert table.take_woken(100, 1000) == [first, second]


def test_pulls_that_came_or_went_during_a_round_are_left_alone():
    gone, stays = hold(connection="c2"), hold()
    table = table_of(gone, stays)
    table.arrived([message(0)])
    table.drop("c2")
    assert table.take_woken(1, 1000) == [stays]
    later = hold(1)
    table.hold(later)
    assert table.take_woken(100, 1000) == []


def test_a_filter_sees_a_bounded_number_of_messages_and_then_the_pull_is_woken():
    compared = []
    waiting = hold(wakes=lambda m: compared.append(m) is not None)
    table = table_of(waiting)
    assert woken_by(table, [message(n) for n in range(MESSAGES_PER_ROUND)]) == []
    assert len(compared) == MESSAGES_PER_ROUND
    for begin in range(0, 10_000, 100):
        table.arrived([message(begin + n) for n in range(100)])
    assert table.take_woken(100, 1000) == [waiting]
    assert len(compared) == MESSAGES_PER_ROUND


async def test_five_hundred_pulls_are_answered_over_many_turns_of_the_loop(tmp_path, monkeypatch):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        await send(client)
        finished, sizes = [], []
        finish, turn = PullHandler.finish, HoldService._turn

        def counted(self, one):
            finished.append(one)
            finish(self, one)

        def measured(self):
            before = len(finished)
            turn(self)
            sizes.append(len(finished) - before)

        monkeypatch.setattr(PullHandler, "finish", counted)

        monkeypatch.setattr(HoldService, "_turn", measured)
        waiting = [asyncio.create_task(pull(client, queueOffset="1", sysFlag="6")) for _ in range(500)]
        while len(broker.context.holds) < 500:
            await asyncio.sleep(0)
        assert (await send(client)).code == 0
        assert {answer.code for answer in await asyncio.gather(*waiting)} == {0}
        assert (sum(sizes), max(sizes)) == (500, ANSWERS_PER_TURN)


@pytest.mark.parametrize("where", ["read", "send"])
async def test_a_pull_that_fails_does_not_take_the_others_along(tmp_path, monkeypatch, where, caplog):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client, connected(broker) as other:
        await send(client)
        bad = asyncio.create_task(pull(other, queueOffset="1", sysFlag="6"))
        while len(broker.context.holds) < 1:
            await asyncio.sleep(0)
        count = 2 * ANSWERS_PER_TURN
        waiting = [asyncio.create_task(pull(client, queueOffset="1", sysFlag="6")) for _ in range(count)]
        while len(broker.context.holds) < count + 1:
            await asyncio.sleep(0)
        (held, *_) = broker.context.holds
        asked = held.request

        def fail(*_: object, **__: object) -> None:
            raise OSError("the disk is gone")

        if where == "send":
            monkeypatch.setattr(asked.connection, "send", fail)
        else:
            answer = PullHandler._answer
            monkeypatch.setattr(
                PullHandler,
                "_answer",
                lambda self, request, **more: fail() if request is asked else answer(self, request, **more),
            )
        await send(client)
        assert {one.code for one in await asyncio.gather(*waiting)} == {0}
        if where == "send":
            with pytest.raises(ConnectionLost):
                await bad
        else:
            refused = await bad
            assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "OSError: the disk is gone")


def test_a_slice_counts_compared_messages_and_expensive_filters_more():
    compared = []
    holds = [hold(wakes=lambda m: compared.append(m) is not None) for _ in range(100)]
    expensive = [hold(queue_id=1, wakes=lambda m: compared.append(m) is not None) for _ in range(10)]
    for one in expensive:
        one.filter_cost = 50
    table = table_of(*holds, *expensive)
    table.arrived([message(n) for n in range(MESSAGES_PER_ROUND)])
    table.arrived([message(n, queue_id=1) for n in range(4)])
    counts = []
    while table.has_arrivals:
        before = len(compared)
        assert table.take_woken(100, 1000) == []
        counts.append(len(compared) - before)
    assert sum(counts) == 100 * MESSAGES_PER_ROUND + 10 * 4
    assert max(counts) < 1000 + MESSAGES_PER_ROUND
    assert max(counts[-2:]) <= 1000 // 50 + 4


async def test_a_property_filter_counts_for_more_than_a_tag(tmp_path):
    conf = broker_conf(tmp_path, enablePropertyFilter=True)
    async with running_broker(conf) as broker, connected(broker) as client:
        await send(client)
        sql = {"expressionType": "SQL92", "subscription": "a > 1"}
        asked = [{"subscription": "red"}, sql]
        pulls = [asyncio.create_task(pull(client, queueOffset="1", sysFlag="6", **one)) for one in asked]
        while len(broker.context.holds) < 2:
            await asyncio.sleep(0)
        assert [one.filter_cost for one in broker.context.holds] == [1, PROPERTY_FILTER_COST]
        for one in pulls:
            one.cancel()
