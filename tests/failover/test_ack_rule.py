"""The rule by which a master acknowledges is that of `in_sync.acknowledged_end`, kept cheap for every send."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.in_sync import InSyncRules, InSyncState, Replica, acknowledged_end

MEMBERS = ["a", "b", "c"]
sets = st.frozensets(st.sampled_from(MEMBERS))


@given(sets, st.frozensets(sets, max_size=2), st.dictionaries(st.sampled_from(MEMBERS), st.integers(0, 100)))
def test_it_is_the_rule_of_the_in_sync_set(members, unsure, ends):
    state, rules = InSyncState(members, 5, unsure), InSyncRules(size_min=2)
    rule = AckRule("a", rules, state, log_end=0)
    replicas = {name: Replica(end, True) for name, end in ends.items()}
    assert rule.end(ends, 60) == min(acknowledged_end(state, "a", replicas, 60, rules), 60)


def test_what_was_acknowledged_is_remembered_when_a_replica_is_gone():
    rule = AckRule("a", InSyncRules(), InSyncState(frozenset("ab"), 1), log_end=40)
    assert rule.acknowledged == 40, "what was there before may have been acknowledged"
    assert rule.end({"b": 90}, 100) == 90
    assert rule.end({}, 100) == 0
    assert rule.acknowledged == 90


def test_a_growing_set_waits_for_both_and_a_small_one_for_nothing():
    rule = AckRule("a", InSyncRules(), InSyncState(frozenset("ab"), 1), log_end=0)
    rule.state = rule.state.writing("abc")
    assert rule.end({"b": 50}, 100) == 0
    assert rule.end({"b": 50, "c": 30}, 100) == 30
    rule.state = rule.state.written("abc", 2).writing("a")
    assert rule.end({"b": 50, "c": 50}, 100) == 0, "etcd may have a set in which the master is alone"
    assert not rule.may_wait({"b": 50, "c": 50})


def test_sends_do_not_wait_one_after_another_for_a_member_that_is_late():
    rule = AckRule("a", InSyncRules(), InSyncState(frozenset("abc"), 1), log_end=0)
    assert rule.may_wait({"b": 50}), "it may connect in time"
    rule.missed({"b": 50}, 60)
    assert not rule.may_wait({"b": 60}), "c is late, too"
    assert not rule.may_wait({"c": 60, "b": 50})
    assert rule.may_wait({"b": 51, "c": 1})
    rule.missed({"b": 60}, 70)
    rule.state = rule.state.written("ab", 2)
    assert rule.may_wait({"b": 61}), "a late member that left the set is not waited for"
