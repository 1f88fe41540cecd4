"""What an operator may ask of a group with failover, and what the command says when the brokers do not do it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from tests.failover.situations import keys, leader, member, without

from twinlog.cli.failover.reinit import check_reinit
from twinlog.cli.failover.report import history_report, list_report
from twinlog.cli.failover.wishes import WishFailed, carry_out, plan_failover, plan_switchover
from twinlog.failover.comparisons import Delete
from twinlog.failover.records import SWITCH, History, InSync, Pause, Switch
from twinlog.observe.replicas.failover_groups import FailoverRefused, Found, find_member

NOW = 1_700_000_000_000


def found(given=None, group=None, **more):
    shown = given if given is not None else keys(**more)
    ports = {"a": 1, "b": 2, "c": 3}
    members = {
        name: msgspec.structs.replace(one, address=f"{name}:10911", broker_id=ports[name])
        for name, one in shown.members.items()
    }
    return Found("C", "g", dataclasses.replace(shown, members=members), [], group)


class Group:
    """The group's keys in etcd: each read gives the next of `reads`."""

    def __init__(self, *reads, takes=True):
        self.reads, self.takes, self.written = list(reads), takes, []

    async def transact(self, wanted):
        self.written.append(wanted)
        return 60 if self.takes else None

    async def read(self):
        return self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]


async def no_sleep(_):
    pass


def test_a_switchover_goes_only_to_a_running_member_that_is_in_sync():
    """Seen to fail when `plan_switchover` does not look at the in-sync set."""
    assert plan_switchover(found(), None, "me", NOW).switch == Switch(
        to=None, kind="switchover", epoch=3, by="me", at_ms=NOW
    )
    assert plan_switchover(found(), "b:10911", "me", NOW).switch.to == "b"
    assert plan_switchover(found(), "3", "me", NOW).switch.to == "c", "a brokerId"
    only_b = InSync(epoch=3, members=("a", "b"))
    for group, to, why in (
        (found(), "a:10911", "is the master of g already"),
        (found(), "d:10911", "no member d:10911 of g runs; the running ones are: a:10911"),
        (found(in_sync=only_b), "c:10911", "c:10911 is not in sync"),
        (found(without(keys(in_sync=only_b), "b")), None, "no replica of g is in sync and running"),
        (found(keys(None)), None, "has no master"),
        (
            found(switch=Switch(to="b", kind="switchover", epoch=3, by="you")),
            None,
            "under way already, asked for by you",
        ),
    ):
        with pytest.raises(FailoverRefused, match=why):
            plan_switchover(group, to, "me", NOW)


def test_a_failover_to_a_member_that_lacks_messages_names_the_range_and_needs_force():
    """Seen to fail when `plan_failover` takes the target's own end for the end that was published."""
    shown = keys(None, in_sync=InSync(epoch=3, members=("a", "b")))
    shown = dataclasses.replace(shown, members={"b": member(1000), "c": member(400)})
    with pytest.raises(FailoverRefused, match="bytes 400 to 1000 of the log would be lost"):
        plan_failover(found(shown), "c:10911", "me", NOW, force=False)
    forced = plan_failover(found(shown), "c:10911", "me", NOW, force=True)
    assert (forced.switch.to, forced.switch.force, forced.lost) == ("c", True, (400, 1000))
    assert plan_failover(found(shown), "b:10911", "me", NOW, force=False).lost is None
    with pytest.raises(FailoverRefused, match="--to HOST:PORT"):
        plan_failover(found(shown), None, "me", NOW, force=True)


async def test_the_command_waits_until_the_wanted_member_leads():
    after = keys("b", epoch=4, leader=leader("b", 4))
    group = Group(keys(), keys(None), after)
    wish = plan_switchover(found(), "b:10911", "me", NOW)
    done = await carry_out(found(group=group), wish, sleep=no_sleep)
    assert done.leader is not None and done.leader.address == "b:10911"
    (written,) = group.written
    assert [one.key for one in written.compares] == [SWITCH, "epoch"]


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (
            Group(keys(switch=Switch(to="b", kind="switchover", epoch=3, result="b has 5 of 9"))),
            "did not happen: b has 5 of 9. The master is a:10911",
        ),
        (Group(keys("c", epoch=4, leader=leader("c", 4))), "another member took over: c:10911 is master, epoch 4"),
        (Group(keys(switch=Switch(to="b", kind="switchover", epoch=3))), "so the wish is withdrawn. The master is a"),
        (Group(keys(None)), "it is not over after 0 s. There is no master now"),
    ],
)
async def test_a_wish_that_is_not_fulfilled_says_who_is_master(group, says):
    wish = plan_switchover(found(), "b:10911", "me", NOW)
    with pytest.raises(WishFailed, match=says):
        await carry_out(found(group=group), wish, wait_s=0.01, sleep=no_sleep)
    if "withdrawn" in says:
        assert group.written[-1].writes == (Delete(SWITCH),)


async def test_two_operators_at_once_get_one_switch():
    wish = plan_switchover(found(), None, "me", NOW)
    with pytest.raises(FailoverRefused, match="has changed in this moment"):
        await carry_out(found(group=Group(keys(), takes=False)), wish, sleep=no_sleep)


def test_the_list_shows_members_that_do_not_run_and_a_pause():
    shown = found(without(keys(pause=Pause(by="me", at_ms=NOW, why="new disks")), "c"))
    report = list_report([shown])
    assert [row[2] for row in report.tables[0].rows] == ["master", "replica", "not running"]
    assert report.tables[0].title == "C/g: master a:10911, epoch 3, paused"
    assert "new disks" in report.lines[0] and "twinlog failover resume g" in report.lines[0]
    assert "no group" in list_report([]).lines[0]


def test_the_history_names_what_was_lost():
    lost = History(epoch=4, member="b", address="b:10911", start=5, reason="forced", at_ms=NOW, lost=(5, 9))
    report = history_report(Found("C", "g", keys(), [lost], None))
    assert report.tables[0].rows[0][5] == "5 to 9"
    assert "no master yet" in history_report(Found("C", "g", keys(), [], None)).lines[0]


def test_only_a_store_that_others_have_is_emptied():
    check_reinit(keys(in_sync=InSync(epoch=3, members=("a",))), "b", force=False)
    check_reinit(keys(), "b", force=True)
    for shown, store, why in ((keys(), "b", "one of 3"), (keys(), "a", "the master's"), (keys(None), "b", "no master")):
        with pytest.raises(FailoverRefused, match=why):
            check_reinit(shown, store, force=why == "no master")


def test_a_member_is_found_by_address_id_or_the_beginning_of_its_store():
    shown = found()
    assert find_member(shown, "2")[0] == find_member(shown, "b:10911")[0] == "b"
    with pytest.raises(FailoverRefused):
        find_member(shown, "b")
