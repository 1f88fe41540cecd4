"""The service around `decide`: what it does when the lease, a promotion or a write to etcd goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.comparisons import CreatedAt, Delete
from twinlog.failover.etcd import EtcdUnavailable, LeaseGone, OutcomeUnknown
from twinlog.failover.failover_service import FailoverService
from twinlog.failover.host import OwnLog
from twinlog.failover.records import (
    HISTORY,
    IN_SYNC,
    LEADER,
    PAUSE,
    Entry,
    History,
    Leader,
    Pause,
    Tail,
    decode_record,
    encode_record,
    history_name,
    member_name,
    read_keys,
)
from twinlog.replication.master_epoch import MasterEpochs
from twinlog.settings.broker_conf import BrokerConf
from twinlog.settings.failover import FailoverSettings
from twinlog.settings.replication import ReplicationSettings

PATIENCE_S = 20.0
ME = "me"


class Group:
    """The keys in memory, as the service uses them; `etcd` is the same object."""

    def __init__(self):
        self.etcd = self
        self.entries = {}
        self.leases = set()
        self.revision = 1
        self.numbers = itertools.count(1)
        self.reads_held = asyncio.Event()  # reads wait for it
        self.reads_held.set()
        self.on_transaction = lambda wanted: None
        self.on_keepalive = lambda: None
        self.lost_answers = 1  # so many puts are made, and not answered

    async def read(self):
        await self.reads_held.wait()
        return read_keys(self.entries.values(), self.revision)

    async def history(self):
        found = [one for one in self.entries.values() if one.name.startswith(HISTORY)]
        return {one.name: (decode_record(History, one.name, one.value), one.changed) for one in found}

    async def put(self, name, value, *, lease=0):
        if lease not in self.leases:
            raise LeaseGone("requested lease not found")
        self.write(name, value, lease)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("no answer")

    async def transact(self, wanted):
        for compare in wanted.compares:
            entry = self.entries.get(compare.key)
            found = 0 if entry is None else entry.created if isinstance(compare, CreatedAt) else entry.changed
            if found != compare.revision:
                return None
        self.on_transaction(wanted)
        for write in wanted.writes:
            if isinstance(write, Delete):
                self.entries.pop(write.key, None)
            else:
                self.write(write.key, write.value, write.lease)
        return self.revision

    def write(self, name, value, lease):
        self.revision += 1
        before = self.entries.get(name)
        self.entries[name] = Entry(name, value, before.created if before else self.revision, self.revision, lease)

    async def grant(self, ttl_s):
        self.leases.add(lease := next(self.numbers))
        return lease

    async def keep_alive(self, lease):
        if lease not in self.leases:
            raise LeaseGone("expired")
        self.on_keepalive()
        return 2

    async def revoke(self, lease):
        self.leases.discard(lease)
        self.entries = {name: one for name, one in self.entries.items() if one.lease != lease}


class Host:
    """A broker that does what it is told at once, or fails."""

    member, address, ha_address, broker_id = ME, "me:1", "me:2", 1

    def __init__(self):
        self.is_master = self.is_unfinished = False
        self.is_following = True
        self.epochs = MasterEpochs(is_replica=True)
        self.end = 100
        self.until_ms = None  # of the lease; None: a replica needs none
        self.promotion_error: Exception | None = None
        self.step_down_error: Exception | None = None
        self.promotions = 0
        self.ends: dict[str, int] = {}
        self.rule: AckRule | None = None
        self.set_aside: list[Tail] = []
        self.kept_its_log = True

    def log(self):
        return OwnLog(0, self.end, True)

    def replica_ends(self):
        return self.ends

    def lease(self, until_ms):
        self.until_ms = until_ms

    def see_epoch(self, epoch):
        self.epochs = self.epochs.saw(epoch)

    def follow(self, address, ha_address): ...
    def join_now(self): ...
    def pause_sends(self, why): ...
    def acknowledge_by(self, rule):
        self.rule = rule

    async def promote(self, role, epoch):
        self.promotions += 1
        self.is_unfinished = True
        if self.promotion_error is not None:
            raise self.promotion_error
        self.is_unfinished, self.is_master = False, True
        self.epochs = self.epochs.promoted(epoch)

    async def step_down(self):
        self.is_master, self.is_unfinished = False, True
        if self.step_down_error is not None:
            raise self.step_down_error
        self.is_master = self.is_unfinished = False
        self.until_ms = None
        self.epochs = self.epochs.following()

    async def cut_divergence(self, master_address, epoch): ...

    def tails(self):
        return [(tail, 3) for tail in self.set_aside]

    def forget_tail(self, tail):
        self.set_aside.remove(tail)


class Skipping:
    """The loop's time, which a test may push forward."""

    def __init__(self):
        self.skipped_ms = 1_000_000

    def __call__(self):
        return self.skipped_ms + int(asyncio.get_running_loop().time() * 1000)


@pytest.fixture
async def group():
    return Group()


@pytest.fixture
async def running(group):
    """(host, service) that run until the test is over."""
    conf = BrokerConf(
        failover=FailoverSettings(etcd="127.0.0.1:1", lease_seconds=2),
        replication=ReplicationSettings(in_sync_replicas=1),
    )
    host = Host()
    service = FailoverService(host, group, lambda: conf, clock_ms=(clock := Skipping()))
    host.clock, host.service = clock, service
    task = asyncio.create_task(service.run())
    await until(lambda: member_name(ME) in group.entries)  # by then it has seen that there is no leader
    yield host
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until(holds):
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


async def elected(host):
    host.clock.skipped_ms += 2_000  # the lease time of a first start
    await until(lambda: host.is_master)


async def test_a_lease_that_etcd_does_not_know_ends_acknowledgements_at_once(group, running):
    """Seen to fail when the guard stayed valid until the lease's own time: another broker leads by then."""
    await elected(running)
    assert running.until_ms > running.clock()
    group.reads_held.clear()  # so it does not find out by looking
    await group.revoke(group.entries[LEADER].lease)
    await until(lambda: running.until_ms == -1)
    assert running.is_master
    group.reads_held.set()
    await until(lambda: running.epochs.own == 2)


async def test_a_broker_that_cannot_become_master_gives_the_leader_key_back(group, running):
    """Seen to fail: it held the key for ever, promoted itself again and again, and nobody led."""
    running.promotion_error = OSError(28, "No space left on device")
    running.clock.skipped_ms += 2_000
    await until(lambda: running.promotions == 1)
    await until(lambda: not running.is_unfinished and not group.entries.keys() & {LEADER, member_name(ME)})
    for _ in range(5):
        await asyncio.sleep(0)
    assert running.until_ms is None and running.promotions == 1
    running.promotion_error = None
    running.clock.skipped_ms += 6_000
    await until(lambda: running.is_master)


async def test_a_master_that_cannot_step_down_gives_the_leader_key_back(group, running):
    """Seen to fail: it refused sends and renewed its lease, and nobody else could lead."""
    await elected(running)
    running.step_down_error = OSError(28, "No space left on device")
    running.epochs = running.epochs.saw(running.epochs.own + 1)
    await until(lambda: running.is_unfinished and LEADER not in group.entries)
    running.step_down_error = None
    await until(lambda: not running.is_unfinished)
    assert not running.is_master


async def test_a_record_whose_write_was_not_answered_is_kept_up_to_date(group, running):
    """Seen to fail: with the first answer lost, the end of the log stayed what it was."""
    group.write(PAUSE, encode_record(Pause()), 0)  # it stays a candidate
    await until(lambda: member_name(ME) in group.entries)
    running.end = 777
    running.clock.skipped_ms += 1_000
    await until(lambda: b"777" in group.entries[member_name(ME)].value)


async def test_sends_wait_for_a_new_member_before_etcd_knows_it(group, running):
    """Seen to fail when the rule changed with etcd's answer: what was acknowledged meanwhile, the member may lack."""
    await elected(running)
    awaited = []

    def note(wanted):
        if any(write.key == IN_SYNC for write in wanted.writes):
            awaited.append(running.rule.state.awaited)

    group.on_transaction = note
    group.write(member_name("other"), group.entries[member_name(ME)].value, 0)
    running.ends = {"other": 100}
    await until(lambda: awaited)
    assert awaited[0] == {ME, "other"}
    await until(lambda: not running.rule.state.unsure)
    assert running.rule.state.members == {ME, "other"}


async def test_a_lease_lasts_from_before_the_keepalive_was_sent(group, running):
    """Seen to fail with the time of the answer: it may be older than the lease."""
    await elected(running)
    begun, ends = [], []

    def delay():
        group.on_keepalive = lambda: None
        begun.append(running.clock())
        running.clock.skipped_ms += 700
        running.lease = ends.append

    group.on_keepalive = delay
    await until(lambda: ends)
    assert ends[0] <= begun[0] + 2_000 - 500


async def test_the_answer_to_a_send_names_etcd_when_it_takes_no_keys(group, running):
    """Leases are renewed meanwhile: a full etcd does that. Seen to fail when a renewal took the reason away."""
    await elected(running)
    refused = OutcomeUnknown("/v3/kv/txn was sent to e:1: status 429: etcdserver: mvcc: database space exceeded")

    def refuse(wanted):
        if any(write.key == IN_SYNC for write in wanted.writes):
            raise refused

    group.on_transaction = refuse
    group.write(member_name("other"), group.entries[member_name(ME)].value, 0)
    running.ends = {"other": 100}
    why = running.service.why_refused
    await until(lambda: "database space exceeded" in why())
    renewals, said = [], set()
    group.on_keepalive = lambda: renewals.append(1)
    await until(lambda: said.add(why()) or len(renewals) > 2)
    assert all("etcd" in one and "in-sync set cannot be changed" in one for one in said)
    group.on_transaction = lambda wanted: None
    await until(lambda: "etcd" not in why())


async def test_a_broker_that_lost_its_lease_says_that_etcd_does_not_answer(group, running):
    await elected(running)

    def refuse():
        raise EtcdUnavailable("no endpoint of etcd answers: e:1: connection refused")

    group.on_keepalive = refuse
    running.clock.skipped_ms += 2_000
    await until(lambda: not running.is_master)
    assert "no endpoint of etcd answers: e:1: connection refused" in running.service.why_refused()


def another_leads(group, *, may_lose):
    """`you` took over from this broker in epoch 3."""
    group.leases.add(99)
    epoch = History(epoch=3, member="you", address="you:1", start=80, source=ME, reason="", at_ms=0, may_lose=may_lose)
    group.write(history_name(3), encode_record(epoch), 0)
    group.write("epoch", b"3", 0)
    group.write(LEADER, encode_record(Leader(member="you", epoch=3, address="you:1", ha_address="you:2")), 99)


@pytest.mark.parametrize("may_lose", [True, False])
async def test_the_history_gets_the_exact_range_when_the_old_master_has_set_its_tail_aside(group, running, may_lose):
    tail = Tail(member=ME, address="me:1", begin=80, end=100, messages=4, file="/a/tail-80-100", at_ms=7)
    running.set_aside.append(tail)
    another_leads(group, may_lose=may_lose)
    await until(lambda: not running.set_aside)
    record = decode_record(History, "", group.entries[history_name(3)].value)
    assert record.tails == (tail,) and record.lost == ((80, 100) if may_lose else None)


async def test_the_history_says_so_when_the_old_master_comes_back_with_nothing_more(group, running):
    another_leads(group, may_lose=True)

    def record():
        return decode_record(History, "", group.entries[history_name(3)].value)

    await until(lambda: record().tails)
    assert record().tails[0].messages == 0 and record().lost is None
    changed = group.entries[history_name(3)].changed
    await asyncio.sleep(0.2)
    assert group.entries[history_name(3)].changed == changed, "it is written once"


async def test_a_master_whose_machine_was_restarted_does_not_say_that_nothing_was_lost(group, running):
    running.kept_its_log = False
    another_leads(group, may_lose=True)
    await asyncio.sleep(0.5)
    assert not decode_record(History, "", group.entries[history_name(3)].value).tails
