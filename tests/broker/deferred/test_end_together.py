"""Ends of transactions that come among sends: handled after the sends are answered, and with the same outcome."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.contexts import wired
from tests.broker.running import SEND_FIELDS
from tests.broker.stored import messages, stored_context

from twinlog.base.system_names import HALF_TOPIC, OP_TOPIC
from twinlog.broker.deferred.op_records import decode_op_body
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.sends import send
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.sends.unhandled_ends import ENDS_MAX
from twinlog.net.connection import ConnectionOptions, Handler
from twinlog.store.log.append import Appended, PutStatus
from twinlog.wire.command import Command, encode_command

HALVES = 6
COMMIT, ROLLBACK = "8", "12"
ends = st.tuples(
    st.integers(0, HALVES - 1),
    st.sampled_from([COMMIT, COMMIT, ROLLBACK, "0", "x"]),
    st.sampled_from(["PG", "PG", "PG", "other"]),
    st.sampled_from([True, True, False]),  # oneway
)
requests = st.one_of(ends, st.integers(0, 3))  # an end, or a send to this queue


def half(number: int) -> bytes:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01H{number}\x02"
    fields = {**SEND_FIELDS, "e": "1", "f": "4", "i": properties}
    return encode_command(Command(310, number, fields=fields, body=b"half %d" % number))


def ordinary(number: int, queue_id: int = 0) -> bytes:
    fields = {**SEND_FIELDS, "e": str(queue_id), "i": f"UNIQ_KEY\x01S{number}\x02"}
    return encode_command(Command(310, number, fields=fields, body=b"send %d" % number))


def end(number: int, place: tuple[int, int], decision=COMMIT, group="PG", *, oneway=True) -> bytes:
    fields = {
        "topic": "T",
        "producerGroup": group,
        "tranStateTableOffset": str(place[1]),
        "commitLogOffset": str(place[0]),
        "commitOrRollback": decision,
    }
    return encode_command(Command(37, number, 2 if oneway else 0, fields=fields))


class Peer:
    """A producer's connection to a broker that has `HALVES` half messages of it."""

    def __init__(self, ctx, *, fast: bool, others: dict[int, Handler] | None = None) -> None:
        self.ctx, self.services, path = ctx, DeferredServices(ctx), FastSend(ctx)
        self.connection, self.transport = wired(
            ConnectionOptions(
                handlers={**send.handlers(ctx), **self.services.handlers(), **(others or {})},
                after_batch=path.finish if fast else ctx.publish_appends,
                fast=path.take if fast else None,
            )
        )

    async def start(self) -> list[tuple[int, int]]:
        await self.services.transactions.take_over()
        self.connection.data_received(b"".join(half(number) for number in range(HALVES)))
        fields = [answer.fields or {} for answer in self.transport.take_answers()]
        return [(int(one["msgId"][-16:], 16), int(one["queueOffset"])) for one in fields]

    def outcome(self) -> tuple:
        """What both ways have in common; the order of records in the log is not."""
        transactions = self.services.transactions
        transactions.queues.flush_all_ops()
        answers = [(one.opaque, one.code, one.remark) for one in self.transport.take_answers()]
        stored = [
            sorted(
                (one.body, one.sys_flag, one.prepared_transaction_offset) for one in messages(self.ctx, queue_id=id_)
            )
            for id_ in range(4)
        ]
        halves = [one.body for one in messages(self.ctx, HALF_TOPIC)]
        ended = sorted(offset for one in messages(self.ctx, OP_TOPIC) for offset in decode_op_body(one.body))
        return answers, stored, halves, ended, transactions.commits


def play(given_requests: list, step: int, *, fast: bool) -> tuple:
    async def run() -> tuple:
        with tempfile.TemporaryDirectory() as folder, stored_context(Path(folder)) as ctx:
            peer, frames = Peer(ctx, fast=fast), list[bytes]()
            places = await peer.start()
            for number, one in enumerate(given_requests, start=100):
                if isinstance(one, int):
                    frames.append(ordinary(number, one))
                else:
                    which, decision, group, oneway = one
                    frames.append(end(number, places[which], decision, group, oneway=oneway))
            data = b"".join(frames)
            for at in range(0, len(data), step):
                peer.connection.data_received(data[at : at + step])
            return peer.outcome()

    return asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(st.lists(requests, max_size=16), st.sampled_from([97, 1_000, 100_000, 100_000]))
def test_ends_among_sends_have_the_outcome_of_ends_one_by_one(given_requests, step):
    assert play(given_requests, step, fast=True) == play(given_requests, 100_000, fast=False)


def test_sends_are_answered_before_the_ends_of_their_chunk_are_handled(tmp_path: Path):
    async def run() -> None:
        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True)
            places, commits = await peer.start(), []
            write, written = peer.transport.write, peer.services.transactions

            def note(data: bytes) -> None:
                commits.append(written.commits)
                write(data)

            peer.transport.write = note
            chunk = end(1, places[0]) + ordinary(2) + end(3, places[1]) + ordinary(4)
            peer.connection.data_received(chunk)
            assert commits == [0], "one write, of both answers"
            assert [one.opaque for one in peer.transport.take_answers()] == [2, 4]
            assert written.commits == 2
            assert {one.body for one in messages(ctx, queue_id=1)} == {b"half 0", b"half 1"}

    asyncio.run(run())


def test_an_end_behind_a_message_that_is_not_stored_is_handled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def run() -> None:
        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True)
            places, refused = await peer.start(), Appended(PutStatus.PAGE_CACHE_BUSY)
            monkeypatch.setattr(type(ctx.store), "append_run", lambda store, host, rows: [])
            handled, transactions = [], peer.services.transactions
            is_ended = transactions.is_ended
            monkeypatch.setattr(
                transactions, "is_ended", lambda message: handled.append(message.queue_offset) or is_ended(message)
            )
            append = type(ctx.store).append
            monkeypatch.setattr(
                type(ctx.store),
                "append",
                lambda store, draft: refused if draft.body == b"send 2" else append(store, draft),
            )
            path = FastSend(ctx)
            options = peer.connection._options
            options.fast, options.after_batch = path.take, path.finish
            peer.connection.data_received(end(1, places[0]) + ordinary(2) + end(3, places[1]) + ordinary(4))
            assert handled == [0, 1]
            assert [(one.opaque, one.code == 0) for one in peer.transport.take_answers()] == [(2, False), (4, True)]

    asyncio.run(run())


def test_an_end_that_fails_leaves_those_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def run() -> None:
        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True)
            places = await peer.start()
            is_ended = peer.services.transactions.is_ended

            def fails_once(message):
                if message.queue_offset == 0:
                    raise OSError("no such page")
                return is_ended(message)

            monkeypatch.setattr(peer.services.transactions, "is_ended", fails_once)
            peer.connection.data_received(end(1, places[0]) + end(2, places[1]))
            assert [one.body for one in messages(ctx, queue_id=1)] == [b"half 1"]

    asyncio.run(run())


def test_an_end_is_handled_before_the_next_request_of_another_kind(tmp_path: Path):
    async def run() -> None:
        seen = list[int]()

        def look(request) -> None:
            seen.append(peer.services.transactions.commits)

        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True, others={999: look})
            places, other = await peer.start(), encode_command(Command(999, 9))
            chunk = [other, end(1, places[0]), ordinary(2), other, end(3, places[1]), end(4, places[2]), other]
            peer.connection.data_received(b"".join([*chunk, end(5, places[3])]))
            assert seen == [0, 1, 3]
            assert peer.services.transactions.commits == 4

    asyncio.run(run())


@pytest.mark.parametrize("behind", [b"\xff" * 30, b"\x00\x00\x00\x14\x00\x00\x00\x10" + b"x" * 16, b"\x00\x00"])
def test_an_end_before_a_broken_or_unfinished_frame_is_handled(tmp_path: Path, behind):
    async def run() -> None:
        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True)
            places = await peer.start()
            peer.connection.data_received(ordinary(1) + end(2, places[0]) + behind)
            assert [one.body for one in messages(ctx, queue_id=1)] == [b"half 0"]

    asyncio.run(run())


def test_an_end_is_handled_although_the_answers_before_it_cannot_be_written(tmp_path: Path):
    async def run() -> None:
        def fails(data: bytes) -> None:
            raise RuntimeError("no transport")

        with stored_context(tmp_path) as ctx:
            peer = Peer(ctx, fast=True)
            places, write = await peer.start(), peer.transport.write
            peer.transport.write = fails
            peer.connection.data_received(ordinary(1) + end(2, places[0]))
            peer.transport.write = write
            peer.connection.data_received(ordinary(3))
            assert [one.body for one in messages(ctx, queue_id=1)] == [b"half 0"]

    asyncio.run(run())


def test_a_chunk_of_many_ends_is_left_when_the_turn_is_over_and_none_is_lost(tmp_path: Path):
    async def run() -> None:
        with stored_context(tmp_path) as ctx:
            peer, times = Peer(ctx, fast=True), itertools.count()
            places = await peer.start()
            peer.connection._options.inbound.turns.clock = lambda: float(next(times))
            first = [end(1, places[0])] * (ENDS_MAX + 1)
            peer.connection.data_received(b"".join([*first, *first, end(2, places[1])]))
            assert peer.services.transactions.commits == 1
            for _ in range(4):
                await asyncio.sleep(0)
            assert peer.services.transactions.commits == 2
            assert [one.body for one in messages(ctx, queue_id=1)] == [b"half 0", b"half 1"]

    asyncio.run(run())
