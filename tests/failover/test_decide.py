"""Who leads, who follows, who waits: the manual of failover, one sentence per test."""

import dataclasses

import pytest
from tests.failover.situations import NOW, RULES, keys, leader, master, member, replica, without

from twinlog.failover.decide import decide, explain
from twinlog.failover.in_sync import InSyncRules, Replica
from twinlog.failover.records import InSync, Keys, Pause
from twinlog.failover.view import (
    Campaign,
    Follow,
    Promote,
    Publish,
    Resign,
    Role,
    Rules,
    SeeEpoch,
    StepDown,
    Watched,
    WriteInSync,
)
from twinlog.replication.master_epoch import MasterEpochs

LOST = without(keys(None), "a")  # the master's lease has ended


def first(view, now_ms=NOW, rules=RULES):
    return next(iter(decide(view, now_ms, rules)), None)


# -- following -----------------------------------------------------------------------------------------------------


def test_a_replica_follows_the_leader_once():
    assert first(replica("b", keys())) == Follow("a", "a:10911", "a:10912", 3)
    assert first(replica("b", keys(), following=("a", 3))) is None


def test_a_replica_does_not_follow_a_leader_of_an_older_epoch_than_it_has_seen():
    assert first(replica("b", keys(), epochs=MasterEpochs(0, 4, is_replica=True))) is None


def test_without_an_answer_of_etcd_a_replica_does_nothing():
    assert first(replica("b", None)) is None
    assert explain(replica("b", None), NOW, RULES) == "etcd has not answered yet"


def test_nothing_is_decided_while_the_role_changes():
    assert first(replica("b", LOST, role=Role.CHANGING)) is None


# -- taking over ---------------------------------------------------------------------------------------------------


def test_a_member_of_the_in_sync_set_takes_over_with_the_next_epoch_and_leaves_the_set_as_it_is():
    campaign = first(replica("b", LOST))
    assert isinstance(campaign, Campaign)
    assert (campaign.epoch, campaign.in_sync, campaign.source) == (4, {"a", "b", "c"}, "a")


def test_a_member_that_is_not_in_sync_is_never_promoted_and_says_who_is_awaited():
    found = without(keys(None, in_sync=InSync(epoch=3, members=("a", "b"))), "a", "b")
    later = NOW + 3_600_000
    view = replica("c", found, lease_until_ms=later)
    assert first(view, later) is None
    assert explain(view, later, RULES) == "this broker is not in sync; waiting for one of a, b"


def test_before_it_campaigns_a_member_publishes_the_end_of_its_log():
    found = dataclasses.replace(LOST, members={"b": member(), "c": member(state="candidate")})
    assert first(replica("b", found)) == Publish("candidate")


def test_a_member_waits_for_others_to_publish_theirs_but_not_for_long():
    found = dataclasses.replace(LOST, members={"b": member(state="candidate"), "c": member()})
    assert first(replica("b", found)) is None
    assert isinstance(first(replica("b", found), NOW + 1000), Campaign)


@pytest.mark.parametrize(
    ("other", "goes_first"),
    [
        (member(2000, "candidate"), "c"),
        (member(500, "candidate"), "b"),
        (member(1000, "candidate", priority=1), "c"),
        (member(1000, "candidate"), "b"),  # the lowest id
        (member(2000, "candidate", priority=-1), "b"),
        (member(2000, "candidate", whole=False), "b"),
    ],
)
def test_the_longest_log_goes_first_then_the_priority_then_the_lowest_id(other, goes_first):
    found = dataclasses.replace(LOST, members={"b": member(1000, "candidate"), "c": other})
    assert isinstance(first(replica("b", found)), Campaign) == (goes_first == "b")


def test_one_that_goes_first_and_does_not_is_passed_over_after_a_lease_time():
    found = dataclasses.replace(LOST, members={"b": member(1000, "candidate"), "c": member(2000, "candidate")})
    assert first(replica("b", found), NOW + 2900) is None
    assert isinstance(first(replica("b", found, lease_until_ms=NOW + 9000), NOW + 3100), Campaign)


def test_without_a_lease_of_its_own_nobody_campaigns():
    assert first(replica("b", LOST, lease_until_ms=NOW - 1)) is None


def test_nobody_below_priority_zero_is_promoted_by_itself():
    assert first(replica("b", LOST, priority=-1)) is None


def test_an_epoch_that_etcd_knows_is_in_the_epoch_file_before_anything_else():
    assert first(replica("b", LOST, epochs=MasterEpochs(0, 2, is_replica=True))) == SeeEpoch(3)


def test_the_old_master_may_win_again_with_a_new_epoch():
    campaign = first(replica("a", without(keys(None), "b", "c"), epochs=MasterEpochs(3, 3, is_replica=True)))
    assert isinstance(campaign, Campaign)
    assert (campaign.epoch, campaign.in_sync) == (4, {"a", "b", "c"})


def test_an_async_group_reports_what_the_last_master_had_published_beyond_the_new_one():
    rules = Rules(in_sync=InSyncRules(awaits_replicas=False))
    campaign = first(replica("b", LOST, watched=Watched(0, NOW - 1000, leader_end=1700)), rules=rules)
    assert isinstance(campaign, Campaign)
    assert campaign.lost == (1000, 1700)


# -- a restarted machine -------------------------------------------------------------------------------------------


def test_a_log_that_may_lack_what_it_had_reported_waits_for_the_whole_ones():
    view = replica("b", LOST, whole=False)
    assert first(view) is None
    assert "waiting for a, c" in (explain(view, NOW, RULES) or "")


def test_if_all_members_of_the_set_are_in_that_doubt_and_run_the_longest_log_leads():
    doubtful = {name: member(500, "candidate", whole=False) for name in ("a", "b", "c")}
    view = replica("b", keys(None, members=doubtful), whole=False)
    assert isinstance(first(view), Campaign)
    assert first(replica("b", without(keys(None, members=doubtful), "c"), whole=False)) is None


# -- becoming master -----------------------------------------------------------------------------------------------


def test_who_holds_the_leader_key_on_its_own_lease_becomes_master_with_exactly_its_epoch():
    found = keys("b", leader=leader("b", 4), epoch=4)
    assert first(replica("b", found)) == Promote(4)


def test_a_leader_key_of_an_earlier_life_is_left_to_its_lease():
    found = keys("b", leader=leader("b", 4), epoch=4, leader_lease=99)
    assert first(replica("b", found)) is None


def test_a_leader_key_in_whose_epoch_this_broker_has_stepped_down_is_given_up():
    step = first(replica("a", keys(), epochs=MasterEpochs(3, 3, is_replica=True)))
    assert isinstance(step, Resign)


def test_a_leader_key_below_an_epoch_that_was_seen_is_given_up():
    assert isinstance(first(replica("a", keys(), epochs=MasterEpochs(2, 5, is_replica=True))), Resign)


def test_nobody_becomes_master_when_the_lease_is_about_to_end():
    found = keys("b", leader=leader("b", 4), epoch=4)
    assert first(replica("b", found, lease_until_ms=NOW - 1)) is None


# -- a master ------------------------------------------------------------------------------------------------------


def test_a_master_with_everything_in_order_does_nothing():
    assert first(master(keys())) is None


def test_a_master_whose_lease_is_not_renewed_steps_down_even_if_etcd_does_not_answer():
    assert isinstance(first(master(None, lease_until_ms=NOW - 1)), StepDown)
    assert first(master(None)) is None


def test_a_master_that_sees_a_higher_epoch_steps_down():
    assert isinstance(first(master(keys(), epochs=MasterEpochs(3, 4))), StepDown)


@pytest.mark.parametrize("found", [LOST, keys("b", leader=leader("b", 4), epoch=4), keys("a", leader_lease=99)])
def test_a_master_that_does_not_hold_the_leader_key_steps_down(found: Keys):
    assert isinstance(first(master(found)), StepDown)


def test_a_replica_without_a_connection_leaves_the_set_after_a_while():
    lost = {"b": Replica(1000, True), "c": Replica(0, False, NOW - 1000)}
    assert first(master(keys(), replicas=lost)) is None
    assert first(master(keys(), replicas=lost, lease_until_ms=NOW + 9000), NOW + 4000) == WriteInSync(
        frozenset({"a", "b"})
    )


# -- first start, pause, etcd without its data ---------------------------------------------------------------------

FRESH = Keys(revision=5, members={name: member(0, "candidate", epoch=0) for name in ("a", "b", "c")})


def test_at_the_first_start_the_longest_log_leads_after_one_lease_time():
    longest = dataclasses.replace(FRESH, members={**FRESH.members, "b": member(700, "candidate", epoch=0)})
    given = {"epochs": MasterEpochs(), "lease_until_ms": NOW + 9000}
    view = replica("b", longest, log_end=700, watched=Watched(NOW, NOW), **given)
    assert first(view) is None
    campaign = first(view, NOW + 4000)
    assert isinstance(campaign, Campaign)
    assert (campaign.epoch, campaign.in_sync, campaign.source) == (1, {"b"}, None)
    assert first(replica("a", longest, log_end=0, watched=Watched(NOW, NOW), **given), NOW + 4000) is None


def test_while_failover_is_paused_nobody_is_promoted_and_a_master_whose_lease_ends_still_stops():
    paused = Pause(by="ops")
    assert first(replica("b", dataclasses.replace(LOST, pause=paused))) is None
    assert isinstance(first(master(keys(pause=paused), lease_until_ms=NOW - 1)), StepDown)


@pytest.mark.parametrize("found", [FRESH, LOST])
def test_nobody_leads_when_etcd_knows_less_than_a_broker(found: Keys):
    later = NOW + 3_600_000
    for known in ({"epochs": MasterEpochs(0, 7, is_replica=True)}, {}):
        members = found.members if known else {**found.members, "c": member(0, "candidate", epoch=7)}
        view = replica("b", dataclasses.replace(found, members=members), **known, lease_until_ms=later)
        assert not any(isinstance(step, Campaign) for step in decide(view, later, RULES))
        assert "etcd has lost data" in (explain(view, later, RULES) or "")


def test_a_master_steps_down_when_a_broker_shows_up_that_has_seen_more_than_etcd():
    newer = {**keys().members, "c": member(epoch=7)}
    assert isinstance(first(master(keys(members=newer))), StepDown)


def test_etcd_that_was_emptied_under_a_master_makes_it_step_down():
    assert isinstance(first(master(FRESH)), StepDown)
