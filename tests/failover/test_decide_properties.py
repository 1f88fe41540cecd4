"""Whatever a member sees: `decide` returns, and some things it never does."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.failover.situations import NOW, RULES, leader, member

from twinlog.failover.decide import decide, explain
from twinlog.failover.in_sync import InSyncState, Replica
from twinlog.failover.records import History, InSync, Keys, Pause, Switch
from twinlog.failover.transactions import transaction
from twinlog.failover.view import (
    Campaign,
    EndSwitch,
    Follow,
    Promote,
    Resign,
    Role,
    StepDown,
    View,
    Watched,
    WriteInSync,
)
from twinlog.replication.master_epoch import MasterEpochs

NAMES = st.sampled_from("abc")
SETS = st.frozensets(NAMES)
EPOCHS = st.integers(0, 4)
ENDS = st.sampled_from([0, 500, 1000])
TIMES = st.sampled_from([None, NOW - 60_000, NOW - 3000, NOW - 500, NOW])


def usually(value, otherwise):
    """Mostly this value: else almost no view would let anybody campaign."""
    return st.integers(0, 5).flatmap(lambda n: st.just(value) if n else otherwise)


SWITCHES = st.builds(
    Switch,
    to=st.none() | NAMES,
    kind=st.sampled_from(["switchover", "failover"]),
    epoch=EPOCHS,
    force=st.booleans(),
    ready=st.booleans(),
    result=st.none() | st.just("over"),
)
MEMBERS = st.dictionaries(
    NAMES,
    st.builds(
        member,
        ENDS,
        st.sampled_from(["replica", "candidate", "master"]),
        epoch=usually(0, EPOCHS),
        priority=usually(0, st.integers(-1, 1)),
        whole=usually(True, st.booleans()),
    ),
)


@st.composite
def all_keys(draw) -> Keys:
    epoch = draw(EPOCHS)
    holder = draw(usually(None, NAMES))
    return Keys(
        revision=50,
        leader=leader(holder, epoch) if holder and epoch else None,
        leader_created=40 if holder and epoch else 0,
        leader_lease=draw(st.sampled_from([11, 12])) if holder and epoch else 0,
        epoch=epoch,
        epoch_changed=40 if epoch else 0,
        in_sync=draw(st.none() | st.builds(InSync, epoch=st.just(epoch), members=SETS.map(tuple))),
        in_sync_changed=41,
        switch=draw(usually(None, SWITCHES)),
        switch_changed=42,
        pause=draw(usually(None, st.just(Pause()))),
        last=draw(st.none() | st.just(History(epoch=epoch, member="a", address="", start=0, reason="", at_ms=0))),
        members=draw(MEMBERS),
    )


VIEWS = st.builds(
    View,
    me=st.just("b"),
    role=usually(Role.REPLICA, st.sampled_from(Role)),
    epochs=usually(
        MasterEpochs(),
        st.builds(lambda own, more: MasterEpochs(own, own + more, is_replica=True), EPOCHS, st.integers(0, 2)),
    ),
    log_end=ENDS,
    priority=usually(0, st.integers(-1, 1)),
    whole=usually(True, st.booleans()),
    lease=usually(12, st.just(0)),
    lease_until_ms=st.sampled_from([NOW - 1, NOW + 3000]),
    keys=all_keys(),
    watched=st.builds(Watched, TIMES, TIMES, ENDS),
    following=st.none() | st.tuples(NAMES, EPOCHS),
    in_sync=st.builds(InSyncState, SETS, st.just(41), st.frozensets(SETS, max_size=2)),
    replicas=st.dictionaries(NAMES, st.builds(Replica, ENDS, st.booleans(), TIMES)),
    acknowledged=ENDS,
    handing_to=st.none() | NAMES,
    refused_ms=TIMES,
)


@settings(max_examples=120, deadline=None)
@given(VIEWS)
def test_whatever_is_seen_these_hold(view: View):
    """Seen to fail without the check of the lease in `candidacy`."""
    steps = decide(view, NOW, RULES)
    assert steps == decide(view, NOW, RULES)
    explain(view, NOW, RULES)
    keys = view.keys
    for step in steps:
        if isinstance(step, Campaign | Resign | WriteInSync | EndSwitch):
            assert transaction(step, view, wall_ms=0).compares
        match step:
            case Campaign():
                assert keys is not None and keys.leader is None and view.role is Role.REPLICA
                assert view.has_lease(NOW)
                assert step.epoch > max([keys.epoch, view.epochs.seen, *(one.epoch for one in keys.members.values())])
                wish = keys.wish
                forced = wish is not None and wish.force and wish.to == view.me
                in_sync = keys.in_sync is not None and view.me in keys.in_sync.members
                assert forced or in_sync or keys.epoch == 0
                assert view.me in step.in_sync
            case Promote(epoch):
                assert view.epochs.promoted(epoch).own == epoch
                assert keys is not None and keys.leader_lease == view.lease and view.has_lease(NOW)
            case Follow(name, _, _, epoch):
                assert name != view.me and epoch >= view.epochs.seen
            case WriteInSync(members):
                assert len(members) >= min(RULES.in_sync.size_min, len(view.in_sync.members))
            case _:
                pass
    if view.role is Role.MASTER and not view.has_lease(NOW):
        assert isinstance(steps[0], StepDown)
    if view.role is not Role.MASTER:
        assert not any(isinstance(step, WriteInSync | StepDown) for step in steps)
