"""What each step compares and writes in etcd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.failover.situations import NOW, RULES, keys, master, replica, without
from tests.simulation.etcd_model import EtcdModel
from tests.simulation.world import Network, World

from twinlog.failover.comparisons import ChangedAt, CreatedAt, Delete, Put
from twinlog.failover.decide import decide
from twinlog.failover.in_sync import InSyncState
from twinlog.failover.records import (
    EPOCH,
    IN_SYNC,
    LEADER,
    SWITCH,
    Entry,
    History,
    InSync,
    Keys,
    Member,
    Pause,
    RecordBroken,
    Switch,
    decode_record,
    encode_record,
    history_name,
    read_keys,
)
from twinlog.failover.transactions import Transaction, transaction
from twinlog.failover.view import Campaign, EndSwitch, Resign, WriteInSync


def of(step, view):
    return transaction(step, view, wall_ms=1_700_000_000_000)


def test_a_campaign_compares_everything_that_it_was_decided_on():
    view = replica("b", without(keys(None), "a"))
    (step,) = decide(view, NOW, RULES)
    wanted = of(step, view)
    assert wanted.compares == (
        CreatedAt(LEADER, 0),
        ChangedAt(EPOCH, 30),
        ChangedAt(IN_SYNC, 31),
        ChangedAt(SWITCH, 0),
    )
    written = {write.key: write for write in wanted.writes if isinstance(write, Put)}
    assert written[LEADER].lease == 12 and not written[EPOCH].lease
    assert written[EPOCH].value == b"4"
    history = decode_record(History, "", written[history_name(4)].value)
    assert (history.member, history.source, history.start) == ("b", "a", 1000)


def test_the_history_keeps_a_hundred_records():
    view = replica("b", without(keys(None), "a"))
    step = Campaign(150, frozenset("b"), "", None)
    assert Delete(history_name(50)) in of(step, view).writes


def test_a_write_of_the_set_needs_the_leader_key_and_the_revision_that_the_master_knows():
    view = master(keys(), in_sync=InSyncState(frozenset("abc"), 44))
    wanted = of(WriteInSync(frozenset("ab")), view)
    assert wanted.compares == (CreatedAt(LEADER, 30), ChangedAt(IN_SYNC, 44))


def test_a_planned_switch_hands_the_key_over_in_one_transaction():
    found = keys(switch=Switch(to=None, kind="switchover", epoch=3), switch_changed=40)
    wanted = of(Resign("", "b"), replica("a", found))
    assert wanted.compares == (CreatedAt(LEADER, 30), ChangedAt(SWITCH, 40))
    assert wanted.writes[0] == Delete(LEADER)
    ready = decode_record(Switch, SWITCH, wanted.writes[1].value)
    assert (ready.to, ready.ready) == ("b", True)


def test_the_result_of_a_wish_is_written_into_it():
    found = keys(switch=Switch(to="b", kind="switchover", epoch=3), switch_changed=40)
    wanted = of(EndSwitch("no"), master(found))
    assert decode_record(Switch, SWITCH, wanted.writes[0].value).result == "no"


def test_of_two_candidates_with_one_view_one_wins():
    world = World(1)
    etcd = EtcdModel(world, Network(world), 4000)
    leases = {name: etcd.grant() for name in "bc"}
    etcd.commit(of_keys(keys(None)))
    found = read_keys(*etcd.read()[:2])
    campaign = Campaign(4, frozenset("abc"), "", "a")
    won = [etcd.commit(of(campaign, replica(name, found, lease=leases[name])))[0] for name in "bc"]
    assert won == [True, False]
    assert read_keys(*etcd.read()[:2]).epoch == 4


def of_keys(found: Keys):
    return Transaction((), (Put(EPOCH, encode_record(found.epoch)), Put(IN_SYNC, encode_record(found.in_sync))))


def test_a_value_that_does_not_parse_is_named_and_one_broken_member_is_only_absent():
    with pytest.raises(RecordBroken, match="the etcd key in-sync has the value"):
        read_keys([Entry(IN_SYNC, b"{", 1, 1)], 5)
    assert read_keys([Entry("members/x", b"{", 1, 1)], 5).members == {}


@given(st.builds(InSync, epoch=st.integers(0, 1 << 60), members=st.lists(st.text()).map(tuple)))
def test_a_record_is_read_as_it_was_written(record):
    assert decode_record(InSync, IN_SYNC, encode_record(record)) == record


@given(st.binary(max_size=60))
def test_garbage_is_a_broken_record_and_nothing_else(value):
    for kind in (Member, InSync, Switch, Pause, History, int):
        try:
            decode_record(kind, "x", value)
        except RecordBroken:
            continue
