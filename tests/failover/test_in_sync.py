"""The in-sync set: who must hold a message, and how the set grows and shrinks while answers of etcd get lost."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.behind import Behind
from twinlog.failover.in_sync import InSyncRules, InSyncState, Replica, SetFacts, acknowledged_end, next_set

RULES = InSyncRules(size_min=2, gap_bytes_max=500)
AB, ABC = frozenset("ab"), frozenset("abc")


def facts(state: InSyncState, **given) -> SetFacts:
    replicas = {"b": Replica(1000, True), "c": Replica(1000, True)}
    values = {"me": "a", "state": state, "replicas": replicas, "live": "abc", "acknowledged": 1000, "log_end": 1000}
    return SetFacts(**{**values, "now_ms": 50_000, **given})


def end(state: InSyncState, rules: InSyncRules = RULES, **acked: int) -> int:
    return acknowledged_end(state, "a", {name: Replica(at, True) for name, at in acked.items()}, 1000, rules)


# -- acknowledging -------------------------------------------------------------------------------------------------


def test_a_message_is_acknowledged_when_every_member_of_the_set_has_it():
    assert end(InSyncState(ABC, 7), b=900, c=700) == 700
    assert end(InSyncState(AB, 7), b=900, c=700) == 900


def test_a_member_without_a_connection_holds_everything_up():
    assert end(InSyncState(ABC, 7), b=900) == 0


def test_a_set_that_is_too_small_acknowledges_nothing():
    assert end(InSyncState(frozenset("a"), 7)) == 0
    assert end(InSyncState(frozenset("a"), 7), InSyncRules(size_min=1)) == 1000


def test_an_async_master_waits_for_nobody():
    assert end(InSyncState(frozenset("a"), 7), InSyncRules(awaits_replicas=False)) == 1000


def test_a_master_that_may_not_be_in_the_set_acknowledges_nothing():
    assert end(InSyncState(frozenset("bc"), 7), b=900, c=900) == 0


# -- unknown outcomes ----------------------------------------------------------------------------------------------


def test_while_a_write_is_under_way_sends_wait_for_both_sets():
    growing = InSyncState(AB, 7).writing(ABC)
    assert end(growing, b=900, c=700) == 700
    shrinking = InSyncState(ABC, 7).writing(AB)
    assert end(shrinking, b=900, c=700) == 700
    assert end(shrinking.written(AB, 8), b=900, c=700) == 900


def test_a_read_of_the_same_revision_does_not_settle_a_write_that_may_still_arrive():
    growing = InSyncState(AB, 7).writing(ABC)
    assert growing.read(AB, 7) == growing
    assert growing.read(ABC, 8) == InSyncState(ABC, 8)
    assert growing.read(AB, 9) == InSyncState(AB, 9)  # another write was first: the lost one compares 7


def test_an_unsettled_write_is_settled_by_writing_again():
    lost = {"b": Replica(1000, True), "c": Replica(0, False, 49_900)}
    assert next_set(facts(InSyncState(AB, 7).writing(ABC), replicas=lost), RULES) == AB


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "land", "lose", "read"]), st.sets(st.sampled_from("abc"))), max_size=25
    )
)
def test_sends_always_wait_for_every_member_of_the_set_that_etcd_has(events):
    """Writes compare the revision that the master knows; they land late, or never, in any order.

    Seen to fail with a `writing` that changes nothing: a write lands whose answer is lost.
    """
    stored, revision, state = frozenset("a"), 1, InSyncState(frozenset("a"), 1)
    under_way: list[tuple[frozenset[str], int]] = []
    for kind, members in events:
        wanted = frozenset(members | {"a"})
        if kind == "write":
            state = state.writing(wanted)
            under_way.append((wanted, state.changed))
        elif kind == "land" and under_way:
            landing, compared = under_way.pop()
            if compared == revision:
                stored, revision = landing, revision + 1
                if "b" in members:  # the answer arrives
                    state = state.written(landing, revision)
        elif kind == "lose" and under_way:
            under_way.insert(0, under_way.pop())
        elif kind == "read":
            state = state.read(stored, revision)
        assert stored <= state.awaited
        assert state.certain <= stored or not state.unsure


# -- growing and shrinking -----------------------------------------------------------------------------------------


def test_a_replica_enters_when_it_has_everything_acknowledged():
    behind = {"b": Replica(1000, True), "c": Replica(999, True)}
    assert next_set(facts(InSyncState(AB, 7), replicas=behind), RULES) is None
    assert next_set(facts(InSyncState(AB, 7)), RULES) == ABC
    assert next_set(facts(InSyncState(AB, 7), live="ab"), RULES) is None  # etcd does not know it


def test_a_replica_far_behind_the_log_does_not_enter_even_if_little_is_acknowledged():
    far = {"b": Replica(0, True), "c": Replica(100, True)}
    assert next_set(facts(InSyncState(AB, 7), replicas=far, acknowledged=0), RULES) is None


def test_a_member_leaves_when_it_is_behind_for_too_long_or_its_lease_has_ended():
    slow = {"b": Replica(1000, True), "c": Replica(900, True, 50_000 - 15_001)}
    assert next_set(facts(InSyncState(ABC, 7), replicas=slow), RULES) == AB
    gone = {"b": Replica(1000, True), "c": Replica(0, False, 49_999)}
    assert next_set(facts(InSyncState(ABC, 7), replicas=gone), RULES) is None
    assert next_set(facts(InSyncState(ABC, 7), replicas=gone, live="ab"), RULES) == AB


def test_a_stopped_member_leaves_when_its_lease_has_ended_although_its_connection_is_open():
    stopped = {"b": Replica(1000, True), "c": Replica(900, True, 50_000 - RULES.gone_ms_max - 1)}
    assert next_set(facts(InSyncState(ABC, 7), replicas=stopped), RULES) is None
    assert next_set(facts(InSyncState(ABC, 7), replicas=stopped, live="ab"), RULES) == AB
    busy = {"b": Replica(1000, True), "c": Replica(900, True, 50_000 - RULES.gone_ms_max)}  # it keeps up without etcd
    assert next_set(facts(InSyncState(ABC, 7), replicas=busy, live="ab"), RULES) is None


def test_the_set_never_shrinks_below_its_least_size():
    gone = {"b": Replica(0, False, 0)}
    assert next_set(facts(InSyncState(AB, 7), replicas=gone), RULES) is None
    assert next_set(facts(InSyncState(AB, 7), replicas=gone), dataclasses.replace(RULES, size_min=1)) == frozenset("a")


def test_of_several_that_are_gone_the_longest_gone_leaves_first():
    gone = {"b": Replica(0, False, 200), "c": Replica(0, False, 100)}
    assert next_set(facts(InSyncState(ABC, 7), replicas=gone), RULES) == AB


def test_an_async_set_goes_by_the_lag():
    rules = dataclasses.replace(RULES, awaits_replicas=False)
    slow = {"b": Replica(900, True, 0), "c": Replica(400, True, 0)}
    assert next_set(facts(InSyncState(ABC, 7), replicas=slow), rules) == AB


# -- since when a replica is behind --------------------------------------------------------------------------------


def test_a_replica_under_load_is_behind_since_the_time_as_of_which_it_had_everything():
    behind = Behind(0)
    assert behind.update(["b"], {}, 100, 10)["b"] == Replica(0, False, 0)
    assert behind.update(["b"], {"b": 100}, 100, 20)["b"] == Replica(100, True, None)
    assert behind.update(["b"], {"b": 100}, 200, 30)["b"].behind_ms == 20
    assert behind.update(["b"], {"b": 150}, 300, 40)["b"].behind_ms == 20
    assert behind.update(["b"], {"b": 200}, 400, 50)["b"].behind_ms == 30  # it has what the log had at 30
    assert behind.update(["b"], {}, 400, 60)["b"] == Replica(0, False, 30)


# -- the same rule, as it is asked for every send ------------------------------------------------------------------

STATES = st.builds(InSyncState, st.frozensets(st.sampled_from("abc")), st.just(7), st.frozensets(st.just(AB)))


@given(STATES, st.dictionaries(st.sampled_from("bc"), st.sampled_from([0, 500, 1000])))
def test_the_rule_of_a_send_is_the_rule_of_the_set(state, acked):
    assert AckRule("a", RULES, state, 0).end(acked, 1000) == end(state, **acked)
