"""Reads beside the loop: how many at once, whose turn it is, and how they end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from twinlog.broker.disk_work import DiskWork


class Peer:
    closed = False


class Reads:
    """Reads that go on until they are released, in the order in which they began."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.gates: dict[object, threading.Event] = {}

    def of(self, name: object):
        self.gates[name] = threading.Event()

        def work() -> object:
            self.begun.append(name)
            self.gates[name].wait()
            return name

        return work


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def started(work: DiskWork, reads: Reads, peer: Peer, *names: object) -> list[asyncio.Task]:
    tasks = [asyncio.create_task(work.run(peer, reads.of(name))) for name in names]
    await asyncio.sleep(0)
    return tasks


async def test_a_peer_has_a_few_reads_at_once_and_others_have_theirs_beside_it():
    work, reads, greedy, modest = DiskWork(threads=3, per_peer_max=2), Reads(), Peer(), Peer()
    tasks = await started(work, reads, greedy, "a", "b", "c", "d")
    tasks += await started(work, reads, modest, "x")
    await until(lambda: len(reads.begun) == 3)
    assert set(reads.begun) == {"a", "b", "x"}
    assert work.waiting == 2
    for gate in reads.gates.values():
        gate.set()
    assert await asyncio.gather(*tasks) == ["a", "b", "c", "d", "x"]
    work.close()


async def test_peers_that_wait_have_their_turns_one_after_the_other():
    work, reads, peers = DiskWork(threads=1, per_peer_max=1), Reads(), [Peer(), Peer(), Peer()]
    tasks = await started(work, reads, peers[0], "a1", "a2", "a3")
    tasks += await started(work, reads, peers[1], "b1", "b2")
    tasks += await started(work, reads, peers[2], "c1")
    for gate in reads.gates.values():
        gate.set()
    await asyncio.gather(*tasks)
    assert reads.begun == ["a1", "a2", "b1", "c1", "a3", "b2"]
    work.close()


async def test_an_error_is_the_callers_and_the_thread_is_free_again():
    def fails() -> None:
        raise OSError("bad sector")

    work, peer = DiskWork(threads=1, per_peer_max=1), Peer()
    for _ in range(3):
        with pytest.raises(OSError, match="bad sector"):
            await work.run(peer, fails)
    work.close()


async def test_reads_of_a_peer_that_is_gone_do_not_begin():
    work, reads, gone, other = DiskWork(threads=1, per_peer_max=1), Reads(), Peer(), Peer()
    tasks = await started(work, reads, gone, "a", "b")
    tasks += await started(work, reads, other, "x")
    gone.closed = True
    for gate in reads.gates.values():
        gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == ("a", asyncio.CancelledError, "x")
    assert reads.begun == ["a", "x"]
    work.close()


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_a_cancelled_caller_leaves_no_thread_and_no_turn_behind(cancelled):
    work, reads, peer = DiskWork(threads=1, per_peer_max=1), Reads(), Peer()
    tasks = await started(work, reads, peer, "a", "b", "c")
    await until(lambda: reads.begun == ["a"])
    tasks[cancelled].cancel()
    for gate in reads.gates.values():
        gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[cancelled], asyncio.CancelledError)
    assert await work.run(peer, lambda: "next") == "next"
    work.close()


async def test_a_caller_cancelled_at_the_moment_of_its_turn_gives_it_back():
    work, peer, turns = DiskWork(threads=1, per_peer_max=1), Peer(), []
    gate = threading.Event()
    first = asyncio.create_task(work.run(peer, gate.wait))
    second = asyncio.create_task(work.run(peer, lambda: turns.append("second")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work._end(peer)  # the turn of the second is decided, and it has not run yet
    second.cancel()
    work._start(peer)
    gate.set()
    await asyncio.gather(first, second, return_exceptions=True)
    assert await work.run(peer, lambda: "third") == "third"
    assert turns == []
    work.close()


async def test_a_stop_waits_for_the_read_that_has_begun_and_begins_no_other():
    work, reads, peer = DiskWork(threads=1, per_peer_max=1), Reads(), Peer()
    tasks = await started(work, reads, peer, "a", "b")
    await until(lambda: reads.begun == ["a"])
    closing = asyncio.create_task(asyncio.to_thread(work.close))
    await until(lambda: work.waiting == 0)
    assert not closing.done()
    reads.gates["a"].set()
    await closing
    assert await tasks[0] == "a"
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert reads.begun == ["a"]
