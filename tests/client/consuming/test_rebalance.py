import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.client import BadArgument
from twinlog.client.consuming.rebalance import (
    allocate_averagely,
    allocate_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_by_machine_room,
    allocate_nearby,
    plan_moves,
)
from twinlog.wire.bodies import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, i) for i in range(count)]


def test_neighbouring_queues_go_to_the_same_member_and_the_first_members_get_one_more():
    shares = [[q.queue_id for q in allocate_averagely(queues(8), ["c", "a", "b"], me)] for me in "abc"]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_members_beyond_the_number_of_queues_get_none():
    shares = [[q.queue_id for q in allocate_averagely(queues(2), ["a", "b", "c"], me)] for me in "abc"]
    assert shares == [[0], [1], []]


def test_a_client_that_is_not_a_member_gets_none():
    assert allocate_averagely(queues(4), ["a", "b"], "stranger") == []


@given(st.integers(0, 40), st.sets(st.text(min_size=1, max_size=6), min_size=1, max_size=12))
def test_every_queue_has_exactly_one_reader_and_shares_differ_by_at_most_one(count, members):
    shares = [allocate_averagely(queues(count), members, member) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues(count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def java_averagely(all_queues: list[MessageQueue], members: list[str], me: str) -> list[MessageQueue]:
    """Java's arithmetic, line by line."""
    index, mod = members.index(me), len(all_queues) % len(members)
    if len(all_queues) <= len(members):
        average = 1
    else:
        average = len(all_queues) // len(members) + (1 if mod > 0 and index < mod else 0)
    start = index * average if mod > 0 and index < mod else index * average + mod
    size = min(average, len(all_queues) - start)
    return [all_queues[(start + i) % len(all_queues)] for i in range(max(size, 0))]


@given(st.integers(1, 40), st.integers(1, 12))
def test_shares_are_those_that_java_members_work_out(count, size):
    members = sorted(f"10.0.0.{i}@{i}" for i in range(size))
    for me in members:
        assert allocate_averagely(queues(count), members, me) == java_averagely(queues(count), members, me)


def test_moves_release_what_is_no_longer_mine_and_take_what_is_new():
    a, b, c = queues(3)
    assert plan_moves([a, b], [b, c]) == ([a], [c])


JAVA = json.loads((Path(__file__).parent / "vectors" / "allocations.json").read_text())
STRATEGIES = {
    "averagely": allocate_averagely,
    "circle": allocate_by_circle,
    "machine room": allocate_by_machine_room(["room-a"]),
    "nearby": allocate_nearby(
        allocate_averagely,
        lambda queue: queue.broker_name.partition("@")[0],
        lambda member: member.partition("@")[2].partition("#")[0],
    ),
    "consistent hash": allocate_by_consistent_hash(),
    "consistent hash of 3": allocate_by_consistent_hash(3),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_member_gets_the_share_that_java_gives_it(name):
    assert len(JAVA) >= 35 and set(JAVA[0]["shares"]) == set(STRATEGIES)
    for case in JAVA:
        queues = [MessageQueue(*each) for each in case["queues"]]
        expected = [[queues[i] for i in share] for share in case["shares"][name]]
        shuffled = queues[::-1]
        assert [STRATEGIES[name](shuffled, case["members"][::-1], me) for me in case["members"]] == expected


@pytest.mark.parametrize("name", STRATEGIES)
def test_who_is_not_in_the_group_gets_nothing(name):
    assert STRATEGIES[name]([MessageQueue("T", "room-a@b", 0)], ["1@room-a#1"], "2@room-a#2") == []


def test_a_fixed_share_is_given_whatever_others_do():
    mine = [MessageQueue("T", "b", 3)]
    assert allocate_by_config(mine)([MessageQueue("T", "b", 0)], ["x", "me"], "me") == mine


def test_a_room_that_is_not_known_and_a_ring_without_nodes_are_refused():
    nearby = allocate_nearby(allocate_averagely, lambda queue: "", lambda member: "a")
    with pytest.raises(BadArgument, match=r"machine room of .* is not known"):
        nearby([MessageQueue("T", "b", 0)], ["me"], "me")
    with pytest.raises(BadArgument, match="virtual_nodes=0"):
        allocate_by_consistent_hash(0)
