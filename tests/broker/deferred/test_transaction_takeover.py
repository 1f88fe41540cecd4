"""A master that died in the middle of transactions: whoever goes on with its log commits each of them once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.deferred.test_transactions import Producer, check, end, prepare
from tests.broker.offline import Clock, ask
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.base.system_names import HALF_TOPIC, OP_TOPIC
from twinlog.broker.clients.client_table import Client
from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred.services import DeferredServices
from twinlog.net.connection import Request
from twinlog.store.log.append import Appended
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.scan.committed import Commit, LogSlice, slice_at
from twinlog.wire.message import decode_message

COMMIT, ROLLBACK = 8, 12


def die_after_commits(root: Path, clock: Clock, *, ops_after: int | None) -> list[int]:
    """Transactions a to d with other messages between them, and no goodbye; where each record of the log ends."""
    with stored_context(root, clock) as ctx:
        services = DeferredServices(ctx)
        put(ctx, b"before")
        prepared = {name: prepare(ctx, name.encode()) for name in "abcd"}
        for number, (name, decision) in enumerate({"a": COMMIT, "b": ROLLBACK, "c": COMMIT, "d": COMMIT}.items()):
            put(ctx, b"between")
            assert end(services, prepared[name], decision).code == 0
            if number == ops_after:
                services.transactions.queues.flush_all_ops()
        put(ctx, b"after")
        ends, at = [], 0
        while at < ctx.store.log_end:
            record = ctx.store.commit_log.record(at)
            assert record is not None
            at += len(record)
            ends.append(at)
        return [at for at in ends if at > prepared["d"].physical_offset]


def answer_all(services: DeferredServices, producer: Producer) -> list[bytes]:
    """Let the producer answer what it was asked; what that was."""
    asked = []
    for _, fields, body in producer.asked:
        message = decode_message(body)
        asked.append(bytes(message.body))
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": fields["tranStateTableOffset"],
            "commitLogOffset": fields["commitLogOffset"],
            "commitOrRollback": str(ROLLBACK if message.body == b"b" else COMMIT),
            "fromTransactionCheck": "true",
        }
        assert ask(services.handlers(), 37, fields).code == 0
    producer.asked.clear()
    return asked


@pytest.mark.parametrize("ops_after", [None, 0, 2, 3])
async def test_wherever_the_log_ends_each_committed_message_is_there_once(tmp_path: Path, ops_after):
    clock = Clock(NOW)
    ends = die_after_commits(tmp_path / "died", clock, ops_after=ops_after)
    clock.now_ms += 60_000
    for log_end in ends:
        root = tmp_path / str(log_end)
        shutil.copytree(tmp_path / "died", root)
        with stored_context(root, clock) as ctx:
            ctx.store.truncate(log_end)
        for life in range(2):
            with stored_context(root, clock) as ctx:
                services, producer = DeferredServices(ctx), Producer()
                ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
                committed = [body for body in bodies(ctx, queue_id=1) if body in (b"a", b"c", b"d")]
                for _ in range(2):
                    await check(services)
                    asked = answer_all(services, producer)
                    assert not set(asked) & set(committed), f"the log that ends at {log_end} shows the commit"
                    assert not asked or life == 0, "the op records are written now"
                    clock.now_ms += 60_000
                found = [body for body in bodies(ctx, queue_id=1) if body in (b"a", b"b", b"c", b"d")]
                assert sorted(found) == [b"a", b"c", b"d"], f"the log ended at {log_end}"
                services.transactions.queues.flush_all_ops()


async def test_a_commit_that_is_repeated_after_a_restart_stores_nothing(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        first = prepare(ctx)
        assert end(services, first, COMMIT).code == 0
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        assert end(services, first, COMMIT).code == 0
        assert bodies(ctx, queue_id=1) == [b"pay"]
        services.transactions.queues.flush_all_ops()
        assert [bytes(op.body) for op in messages(ctx, OP_TOPIC)] == [b"0,"]


async def test_a_commit_of_a_copy_ends_the_first_one_and_a_delayed_commit_counts_too(tmp_path: Path):
    clock, producer = Clock(NOW), Producer()
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        prepare(ctx, b"asked")
        clock.now_ms += 10_000
        await check(services)
        assert answer_all(services, producer) == [b"asked"]
        end(services, prepare(ctx, b"later", DELAY="1"), COMMIT)
    clock.now_ms += 60_000
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        await check(services)
        assert producer.asked == []
        assert bodies(ctx, queue_id=1) == [b"asked"]
        assert ctx.store.max_offset(HALF_TOPIC, 0) == 3, "and nothing was written again"


async def test_a_new_term_forgets_what_the_last_one_learnt(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        log_end = ctx.store.log_end
        end(services, prepare(ctx, b"mine"), ROLLBACK)
        ctx.store.truncate(log_end)  # a master in between did not have it
        ctx.term += 1
        other = prepare(ctx, b"another")
        assert other.queue_offset == 0
        assert end(services, other, COMMIT).code == 0
        assert bodies(ctx, queue_id=1) == [b"another"]


def test_commits_are_found_in_slices_over_segments_and_damage(tmp_path: Path):
    with stored_context(tmp_path, mappedFileSizeCommitLog=4096) as ctx:
        services, expected = DeferredServices(ctx), []
        for number in range(30):
            stored = prepare(ctx, b"x" * 300)
            if number % 3 == 0:
                end(services, stored, COMMIT)
                expected.append(stored.physical_offset)
        log = ctx.store.commit_log
        found = commits_in(log)
        assert ([one.prepared for one in found], len(log.segments) > 2) == (expected, True)
        segment, first_commit = log.segments[0], found[0]
        segment.map[first_commit.physical_offset + 4 : first_commit.physical_offset + 8] = b"\0\0\0\1"
        assert [one.prepared for one in commits_in(log)] == expected[1:]


def commits_in(log: CommitLog) -> list[Commit]:
    found, at = [], 0
    while (part := slice_at(log, at, log.log_end)) is not None:
        commits, at = part.commits()
        found += commits
    return found


# -- a long log --------------------------------------------------------------------------------------


def request(of: Appended, decision: int = COMMIT) -> Request:
    fields = {
        "producerGroup": "PG",
        "tranStateTableOffset": str(of.queue_offset),
        "commitLogOffset": str(of.physical_offset),
        "commitOrRollback": str(decision),
    }
    return Request(37, 1, fields=fields)


@contextlib.contextmanager
def died(
    root: Path, clock: Clock, *, messages: int = 200
) -> Iterator[tuple[BrokerContext, DeferredServices, Appended]]:
    """A new master behind one that left `open`, wrote much after it and committed some; the open one is returned."""
    with stored_context(root, clock) as ctx:
        services = DeferredServices(ctx)
        left_open = prepare(ctx, b"open")
        for number in range(messages):
            put(ctx, b"%d" % number)
            if number % 50 == 0:
                end(services, prepare(ctx, b"committed"), COMMIT)
    with stored_context(root, clock) as ctx:
        yield ctx, DeferredServices(ctx), left_open


@pytest.fixture
def searched(monkeypatch) -> list[bool]:
    """Slices of ten records; whether each was searched beside the loop."""
    slices, real = [], LogSlice.commits

    def commits(self):
        slices.append(threading.current_thread() is not threading.main_thread())
        return real(self)

    monkeypatch.setattr(LogSlice, "commits", commits)
    monkeypatch.setattr("twinlog.store.scan.committed.RECORDS_PER_SLICE", 10)
    return slices


async def test_ends_wait_for_one_search_of_the_log_beside_the_loop(tmp_path: Path, searched):
    with died(tmp_path, Clock(NOW)) as (ctx, services, left_open):
        searched.clear()
        handler = services.handlers()[37]
        first, second = handler(request(left_open)), handler(request(left_open))
        assert searched == [], "nothing is searched before somebody waits"
        turns = []

        async def work_of_others():
            while True:
                turns.append(len(searched))
                await asyncio.sleep(0)

        others = asyncio.create_task(work_of_others())
        answers = await asyncio.gather(first, second)
        others.cancel()
        assert [answer.code for answer in answers] == [0, 0]
        assert bodies(ctx, queue_id=1) == [b"committed"] * 4 + [b"open"]
        assert all(searched)
        assert len(searched) in range(20, 25), "the log once"
        assert set(turns) >= set(range(len(searched))), "others got a turn between every two slices"
        assert handler(request(left_open)).code == 0, "from now on the answer comes at once"


async def test_the_next_waiting_request_goes_on_when_the_first_one_has_left(tmp_path: Path, searched):
    with died(tmp_path, Clock(NOW)) as (ctx, services, left_open):
        searched.clear()
        handler = services.handlers()[37]
        first, second = (asyncio.ensure_future(handler(request(left_open))) for _ in range(2))
        while len(searched) < 5:
            await asyncio.sleep(0)
        first.cancel()
        assert (await second).code == 0
        assert len(searched) in range(20, 26), "nothing began anew"
        assert bodies(ctx, queue_id=1) == [b"committed"] * 4 + [b"open"]


async def test_who_waits_is_refused_when_the_broker_steps_down(tmp_path: Path, searched):
    with died(tmp_path, Clock(NOW)) as (ctx, services, left_open):
        searched.clear()
        waiting = asyncio.ensure_future(services.handlers()[37](request(left_open)))
        while len(searched) < 3:
            await asyncio.sleep(0)
        ctx.conf = dataclasses.replace(ctx.conf, broker=dataclasses.replace(ctx.conf.broker, broker_role="SLAVE"))
        assert (await waiting).code == 11
        assert bodies(ctx, queue_id=1) == [b"committed"] * 4


async def test_who_waits_is_not_ended_while_this_master_may_have_been_replaced(tmp_path: Path, searched):
    """Seen to fail: the take over outlived the lease, and the commit was appended to the log of an old master."""
    with died(tmp_path, Clock(NOW)) as (ctx, services, left_open):
        searched.clear()
        waiting = asyncio.ensure_future(services.handlers()[37](request(left_open)))
        while len(searched) < 3:
            await asyncio.sleep(0)
        ctx.guard.lease(-1)
        await services.transactions.take_over()
        await asyncio.sleep(0)
        assert bodies(ctx, queue_id=1) == [b"committed"] * 4 and not waiting.done()
        ctx.conf = dataclasses.replace(ctx.conf, broker=dataclasses.replace(ctx.conf.broker, broker_role="SLAVE"))
        ctx.guard.free()
        assert (await waiting).code == 11


async def test_what_an_op_record_names_is_passed_over_undecoded(tmp_path: Path, monkeypatch):
    clock, decoded = Clock(NOW), []
    monkeypatch.setattr("twinlog.broker.deferred.transaction_takeover.decode_message", lambda record: decoded.append(1))
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        prepare(ctx, b"open")
        for _ in range(5):
            end(services, prepare(ctx), COMMIT)
        services.transactions.queues.flush_all_ops()
    with stored_context(tmp_path, clock) as ctx:
        await DeferredServices(ctx).transactions.take_over()
        assert decoded == []


async def test_without_the_groups_offset_only_the_last_rounds_are_searched(tmp_path: Path, searched):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        prepare(ctx, b"an old copy")
        for _ in range(100):
            put(ctx)
        clock.now_ms += 3_600_000
        end(services, prepare(ctx, b"lost"), COMMIT)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        searched.clear()
        await services.transactions.take_over()
        assert len(searched) == 1
        services.transactions.queues.flush_all_ops()
        assert [bytes(op.body) for op in messages(ctx, OP_TOPIC)] == [b"1,"]
