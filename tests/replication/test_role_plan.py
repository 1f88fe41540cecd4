"""A change of role may stop after any step: no acknowledged message is lost, none is acknowledged twice."""

from dataclasses import dataclass, field

import pytest

from twinlog.replication.role_plan import Step, plan_role_change

ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")


@dataclass
class Model:
    """A broker reduced to what must never be true at once."""

    accepts_sends: bool
    follows: bool
    syncs_metadata: bool
    store_appends: bool
    serves_replicas: bool
    offsets_lead: bool
    waiting: list[str] = field(default_factory=lambda: ["a send that waits for its replica"])
    flushed: bool = False
    fed: bool = False
    registered: bool = True
    has_epoch: bool = True

    @classmethod
    def of(cls, role: str) -> "Model":
        master = role != "SLAVE"
        model = cls(master, not master, not master, master, master, master)
        if not master:
            model.waiting, model.has_epoch = [], False
        return model

    def take(self, step: Step) -> None:
        match step:
            case Step.STOP_METADATA_SYNC:
                self.syncs_metadata = False
            case Step.STOP_FOLLOWING:
                self.follows = False
            case Step.LEAD_OFFSETS:
                assert not self.syncs_metadata, "the master's offsets would overwrite ours again"
                self.offsets_lead = True
            case Step.STORE_AS_MASTER:
                assert not self.follows, "a master's bytes would meet our own appends"
                self.store_appends = True
            case Step.TAKE_EPOCH:
                assert not self.follows
                self.has_epoch = True
            case Step.ACCEPT_SENDS:
                assert self.store_appends and self.offsets_lead
                assert self.has_epoch, "the old master would not notice that it was replaced"
                self.accepts_sends = self.serves_replicas = True
            case Step.REFUSE_SENDS:
                self.accepts_sends = False
            case Step.SETTLE_ANSWERS:
                assert not self.accepts_sends, "new sends would begin to wait"
                self.waiting.clear()
            case Step.FLUSH:
                assert not self.accepts_sends
                self.flushed = True
            case Step.FEED_REPLICAS:
                assert not self.accepts_sends and self.serves_replicas
                self.fed = True
            case Step.DROP_REPLICAS:
                assert self.fed, "what was acknowledged a moment ago would be on this broker only"
                assert not self.waiting, "a waiting send would never hear of its replica's report"
                self.serves_replicas = False
            case Step.STORE_AS_REPLICA:
                assert self.flushed and not self.waiting
                self.store_appends = False
            case Step.FOLLOW_OFFSETS:
                self.offsets_lead = False
            case Step.START_FOLLOWING:
                assert not self.store_appends and not self.serves_replicas
                self.follows = self.syncs_metadata = True
            case Step.REGISTER:
                self.registered = True

    def assert_safe(self) -> None:
        assert not (self.accepts_sends and self.follows), "two masters would write one log"
        assert not (self.follows and self.store_appends)
        assert not (self.follows and self.serves_replicas), "a replica of a replica"
        assert not (self.follows and self.waiting), "an answer could be sent for bytes a new master overwrites"
        assert not (self.accepts_sends and not self.store_appends)
        assert not (self.syncs_metadata and self.offsets_lead)


@pytest.mark.parametrize("old", ROLES)
@pytest.mark.parametrize("new", ROLES)
def test_a_change_of_role_may_stop_after_every_step(old, new):
    steps = plan_role_change(old, new)
    for stopped_after in range(len(steps) + 1):
        model = Model.of(old)
        for step in steps[:stopped_after]:
            model.take(step)
            model.assert_safe()


@pytest.mark.parametrize("old", ROLES)
@pytest.mark.parametrize("new", ROLES)
def test_a_whole_plan_leads_to_the_new_role(old, new):
    model, expected = Model.of(old), Model.of(new)
    for step in plan_role_change(old, new):
        model.take(step)
    shown = ("accepts_sends", "follows", "syncs_metadata", "store_appends", "serves_replicas", "offsets_lead")
    assert [getattr(model, name) for name in shown] == [getattr(expected, name) for name in shown]


def test_nothing_is_done_for_the_same_role():
    assert all(plan_role_change(role, role) == () for role in ROLES)
