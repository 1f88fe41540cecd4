"""An operator asks for another master."""

from tests.failover.situations import NOW, RULES, keys, leader, master, member, replica, without

from twinlog.failover.decide import decide, explain
from twinlog.failover.in_sync import InSyncState, Replica
from twinlog.failover.records import InSync, Pause, Switch
from twinlog.failover.view import Campaign, EndSwitch, RefuseSends, Resign, ResumeSends, StepDown
from twinlog.replication.master_epoch import MasterEpochs

TO_B = Switch(to="b", kind="switchover", epoch=3)
BEHIND = {"b": Replica(400, True, NOW), "c": Replica(1000, True)}


def first(view, now_ms=NOW):
    return next(iter(decide(view, now_ms, RULES)), None)


def test_the_master_refuses_sends_until_the_target_has_all_of_its_log_and_then_steps_down():
    found = keys(switch=TO_B)
    assert first(master(found, replicas=BEHIND)) == RefuseSends("b")
    assert first(master(found, replicas=BEHIND, refused_ms=NOW - 100)) is None
    step = first(master(found, refused_ms=NOW - 100))
    assert isinstance(step, StepDown) and step.to == "b"


def test_after_it_stepped_down_it_gives_the_leader_key_to_the_target():
    step = first(replica("a", keys(switch=TO_B), epochs=MasterEpochs(3, 3, is_replica=True), handing_to="b"))
    assert isinstance(step, Resign) and step.to == "b"


READY = Switch(to="b", kind="switchover", epoch=3, ready=True)


def test_only_the_target_campaigns_then_and_the_old_master_stays_in_the_set():
    found = keys(None, switch=READY)
    campaign = first(replica("b", found))
    assert isinstance(campaign, Campaign)
    assert (campaign.reason, campaign.in_sync, campaign.switch_result) == ("switchover", {"a", "b", "c"}, None)
    assert first(replica("a", found)) is None


def test_if_the_target_dies_in_the_middle_another_one_goes_after_a_lease_time_and_the_operator_reads_it():
    found = without(keys(None, switch=READY), "b")
    assert first(replica("c", found)) is None
    campaign = first(replica("a", found, lease_until_ms=NOW + 9000), NOW + 3100)
    assert isinstance(campaign, Campaign)
    assert campaign.switch_result == "a became master of epoch 4: the master was lost"


def test_a_target_that_does_not_catch_up_in_time_leaves_the_master_as_it_was():
    found, late = keys(switch=TO_B), NOW + 11_000
    step = first(master(found, replicas=BEHIND, refused_ms=NOW, lease_until_ms=late), late)
    assert step == EndSwitch("b has the log up to 400 of 1000 after 10000 ms")
    over = keys(switch=Switch(to="b", kind="switchover", epoch=3, result="late"))
    assert first(master(over, refused_ms=NOW)) == ResumeSends()


def test_a_switchover_that_could_lose_messages_is_refused():
    found = keys(switch=TO_B)
    assert first(master(found, in_sync=InSyncState(frozenset("ac"), 31))) == EndSwitch(
        "b is not in sync, so messages could be lost"
    )
    unsure = InSyncState(frozenset("abc"), 31).writing(frozenset("ac"))
    assert isinstance(first(master(found, in_sync=unsure)), EndSwitch)
    assert first(master(without(found, "b"))) == EndSwitch("b does not run: it has no key in etcd")


def test_a_wish_ends_with_its_epoch():
    old = Switch(to="b", kind="switchover", epoch=2)
    assert first(master(keys(switch=old))) == EndSwitch("it was meant for epoch 2; the epoch is 3 now")
    assert first(replica("b", keys(None, switch=old))) != Campaign


def test_without_a_target_the_longest_log_is_chosen():
    found = keys(switch=Switch(to=None, kind="switchover", epoch=3))
    assert first(master(found, replicas=BEHIND)) == RefuseSends("c")


FORCE_C = Switch(to="c", kind="failover", epoch=3, force=True)


def test_a_forced_member_leads_alone_above_every_epoch_and_reports_what_is_lost():
    found = without(keys(None, switch=FORCE_C, in_sync=InSync(epoch=3, members=("a", "b")), pause=Pause()), "a", "b")
    campaign = first(replica("c", found, log_end=400))
    assert isinstance(campaign, Campaign)
    assert (campaign.epoch, campaign.in_sync, campaign.lost) == (4, {"c"}, (400, 1000))


def test_forcing_is_how_a_group_goes_on_whose_etcd_has_lost_its_data():
    wish = Switch(to="c", kind="failover", epoch=0, force=True)
    members = {name: member(1000, "candidate", epoch=9) for name in "abc"}
    found = keys(None, epoch=0, in_sync=None, last=None, switch=wish, members=members)
    view = replica("c", found, epochs=MasterEpochs(0, 7, is_replica=True), lease_until_ms=NOW + 9000)
    campaign = first(view, NOW + 3000)
    assert isinstance(campaign, Campaign)
    assert (campaign.epoch, campaign.in_sync) == (10, {"c"})


def test_it_waits_a_lease_time_then_for_a_master_that_still_believes_in_its_lease():
    """Found by the simulation: a master that was stopped went on, for its lease had been lost with etcd's data."""
    wish = Switch(to="c", kind="failover", epoch=0, force=True)
    found = keys(None, epoch=0, in_sync=None, last=None, switch=wish)
    assert first(replica("c", found)) is None
    assert "still believes" in (explain(replica("c", found), NOW, RULES) or "")


def test_a_forced_member_of_the_set_that_may_have_lost_its_log_leads_alone_too():
    """Found by the simulation: the others stayed in the set, with bytes that the new master did not have."""
    found = keys(None, switch=Switch(to="b", kind="failover", epoch=3, force=True, ready=True))
    campaign = first(replica("b", found, log_end=0, whole=False))
    assert isinstance(campaign, Campaign)
    assert (campaign.in_sync, campaign.lost) == ({"b"}, (0, 1000))


def test_a_living_master_gives_a_forced_target_time_to_catch_up_but_not_forever():
    found, late = keys(switch=FORCE_C), NOW + 11_000
    state, replicas = InSyncState(frozenset("ab"), 31), {"b": Replica(1000, True), "c": Replica(400, True, NOW)}
    view = master(found, in_sync=state, replicas=replicas, refused_ms=NOW, lease_until_ms=late)
    assert first(view) is None
    step = first(view, late)
    assert isinstance(step, StepDown) and step.to == "c"


def test_the_target_is_the_master_already():
    found = keys("b", leader=leader("b", 3), switch=TO_B)
    view = master(found, me="b", epochs=MasterEpochs(3, 3), replicas={})
    assert first(view) == EndSwitch("b is the master already")
