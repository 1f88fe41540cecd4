"""Expensive answers are computed beside the loop, one after the other, and equal questions share them."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
from tests.broker.running import broker_conf, connected, running_broker

from twinlog.broker.replication import metadata_handlers
from twinlog.broker.table_work import TableWork
from twinlog.metadata.persisted import encode_rows


@pytest.fixture
def work():
    made = TableWork()
    yield made
    made.close()


async def test_many_equal_questions_cost_two_answers_beside_the_loop(work):
    gate, threads = threading.Event(), []

    def begin():
        assert threading.current_thread() is threading.main_thread()

        def answer():
            threads.append(threading.current_thread())
            gate.wait(5)
            return len(threads)

        return answer

    first = asyncio.create_task(work.beside_loop("topics", None, begin))
    while not threads:
        await asyncio.sleep(0)
    crowd = [asyncio.create_task(work.beside_loop("topics", None, begin)) for _ in range(120)]
    await asyncio.sleep(0)
    gate.set()
    assert await first == 1
    assert set(await asyncio.gather(*crowd)) == {2}  # made after they asked, so it has what they may expect
    assert threading.main_thread() not in threads


async def test_work_of_one_kind_never_takes_all_threads(work):
    gate, busy = threading.Event(), []

    def slow(number):
        busy.append(number)
        gate.wait(5)
        return number

    digests = [asyncio.create_task(work.in_order("digests", slow, number)) for number in range(20)]
    while not busy:
        await asyncio.sleep(0)
    assert await work.beside_loop("topics", None, lambda: lambda: "served") == "served"
    assert busy == [0]
    gate.set()
    assert await asyncio.gather(*digests) == list(range(20))


async def test_others_have_a_turn_between_two_computations_in_the_loop(work):
    done, seen = [], []

    async def other():
        while True:
            seen.append(len(done))
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    questions = [work.in_turn("changes", number, lambda number=number: done.append(number)) for number in range(10)]
    await asyncio.gather(*questions)
    beside.cancel()
    assert len(done) == 10
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1


async def test_an_error_reaches_every_waiting_request_and_the_next_one_computes_anew(work):
    def begin():
        raise ValueError("broken")

    found = await asyncio.gather(*(work.beside_loop("topics", 1, begin) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ValueError] * 3
    assert await work.beside_loop("topics", 1, lambda: lambda: 5) == 5


async def test_a_hundred_and_twenty_replicas_ask_and_the_tables_are_encoded_a_few_times(tmp_path, monkeypatch):
    encoded = []

    def counted(rows):
        encoded.append(len(rows))
        return encode_rows(rows)

    monkeypatch.setattr(metadata_handlers, "encode_rows", counted)
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        answers = await asyncio.gather(*(client.request(21) for _ in range(120)))
        assert {answer.code for answer in answers} == {0}
        assert len({answer.body for answer in answers}) == 1
        assert 1 <= len(encoded) <= 4  # the requests may come in more than one chunk
