"""The remark of a send that is not acknowledged: the reason, then the next step."""

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.etcd import EtcdUnavailable
from twinlog.failover.in_sync import InSyncRules, InSyncState
from twinlog.failover.reasons import problem_text, why_not_master, why_not_safe
from twinlog.failover.records import Keys, Leader

FULL = "etcd: e:1: etcdserver: mvcc: database space exceeded"


def rule(state: InSyncState) -> AckRule:
    return AckRule("a", InSyncRules(size_min=2), state, log_end=0)


def test_a_replica_names_etcd_the_master_or_why_there_is_none():
    leader = Leader(member="b", epoch=3, address="b:10911", ha_address="b:10912")
    assert FULL in why_not_master(Keys(leader=leader), "a", FULL, None), "the keys are perhaps old"
    assert why_not_master(Keys(leader=leader), "a", "", None) == "the master is b:10911; send there"
    assert "two members are away" in why_not_master(Keys(), "a", "", "two members are away")
    assert "one is being chosen" in why_not_master(None, "a", "", None)


def test_a_master_names_what_the_message_lacks():
    pair = InSyncState(frozenset("ab"), 1)
    assert "have not reported the message: b" in why_not_safe(rule(pair), {"b": 50}, 60, "")
    assert "1 of the 2 members" in why_not_safe(rule(InSyncState(frozenset("a"), 1)), {}, 60, "")
    assert "perhaps not in the in-sync set" in why_not_safe(rule(pair.writing("bc")), {"b": 60}, 60, "")
    assert FULL in why_not_safe(rule(pair), {"b": 50}, 60, FULL)


def test_a_problem_is_one_short_line_that_names_etcd():
    text = problem_text(EtcdUnavailable("no endpoint answers:\n" + "e:1 refused; " * 100))
    assert text.startswith("etcd: no endpoint answers: e:1 refused") and len(text) == 200
    assert problem_text(EtcdUnavailable("no endpoint of etcd answers")) == "no endpoint of etcd answers"
    assert problem_text(OSError(28, "No space left")) == "[Errno 28] No space left"
