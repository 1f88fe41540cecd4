"""Random histories of queues against a model that knows nothing of files."""

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.golden import NoFlush

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queues.queue_table import QueueTable

OPTIONS = {
    "queue_file_bytes": 7 * 20,
    "batch_file_bytes": 5 * 46,
    "ext_file_bytes": 200,
    "ops": NoFlush(),
    "topic_kind": lambda topic: "BatchCQ" if topic == "batch" else "SimpleCQ",
}


class Model:
    """A log as a list of requests, and what each queue must therefore hold."""

    def __init__(self, first_offset: int) -> None:
        self.log: list[DispatchRequest] = []
        self.first_offset = first_offset
        self.log_start = self.log_end = 0
        self.next_offsets: dict[tuple[str, int], int] = {}

    def send(self, rng: random.Random) -> DispatchRequest:
        topic, queue_id, batch_size = rng.choice(["plain", "batch"]), rng.randrange(2), 1
        flags = rng.choice([0, 0, 0, 0x8, 0x4, 0xC])
        queue_offset, size = self.next_offsets.get((topic, queue_id), self.first_offset), rng.randrange(91, 200)
        if topic == "batch":
            batch_size = rng.randrange(1, 4)
        if not flags & 0x4:
            self.next_offsets[topic, queue_id] = queue_offset + batch_size
        request = DispatchRequest(
            topic, queue_id, self.log_end, size, rng.randrange(-5, 5), len(self.log), queue_offset,
            sys_flag=flags, batch_size=batch_size, bitmap=bytes(rng.randrange(3)),
        )  # fmt: skip
        self.log.append(request)
        self.log_end += size
        return request

    def cut(self, count: int) -> None:
        for request in self.log[len(self.log) - count :]:
            if not request.sys_flag & 0x4:
                self.next_offsets[request.topic, request.queue_id] = min(
                    request.queue_offset, self.next_offsets[request.topic, request.queue_id]
                )
        del self.log[len(self.log) - count :]
        self.log_end = self.log[-1].physical_offset + self.log[-1].size if self.log else 0

    def alive(self) -> list[DispatchRequest]:
        return [request for request in self.log if request.physical_offset >= self.log_start]

    def units(self, topic: str, queue_id: int) -> list[tuple[int, int, int, int, int]]:
        return [
            (request.queue_offset, request.physical_offset, request.size, request.tags_code, request.batch_size)
            for request in self.alive()
            if (request.topic, request.queue_id) == (topic, queue_id) and not request.sys_flag & 0x4
        ]


def check(table: QueueTable, model: Model) -> None:
    for topic in ("plain", "batch"):
        for queue_id in range(2):
            units, queue = model.units(topic, queue_id), table.get(topic, queue_id)
            if queue is None:
                assert not units
                continue
            assert [tuple(unit[:5]) for unit in queue.units(queue.min_offset, 1000)] == units
            if units:
                assert (queue.min_offset, queue.max_offset) == (units[0][0], units[-1][0] + units[-1][4])
            for unit in units:
                assert queue.unit(unit[0])[:5] == unit
                assert queue.unit(unit[0] + unit[4] - 1)[:5] == unit


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0, 0, 3, 20]), st.booleans())
def test_queues_hold_what_the_log_holds_through_crashes_cuts_and_retention(tmp_path_factory, seed, first, ext):
    rng, path, model = random.Random(seed), tmp_path_factory.mktemp("store"), Model(first)
    table = QueueTable(path, ext_enabled=ext, **OPTIONS)
    for _ in range(rng.randrange(1, 15)):
        action = rng.choice(["send", "send", "send", "write", "flush", "crash", "restart", "again", "cut", "expire"])
        if action == "send":
            table.dispatch([model.send(rng) for _ in range(rng.randrange(1, 30))])
        elif action == "write":
            table.write_pending()
        elif action == "flush":
            table.flush()
        elif action == "again":
            table.dispatch(model.alive())
        elif action in ("crash", "restart"):
            if action == "restart":
                table.close()
            table = QueueTable(path, ext_enabled=ext, **OPTIONS)
            table.load(clean=action == "restart")
            table.correct_min(model.log_start)
            table.dispatch(model.alive())
        elif action == "cut" and model.log:
            if first == 0:  # a queue cut to nothing starts anew, which is only the same for histories from 0
                model.cut(rng.randrange(len(model.alive()) or 1))
                table.truncate_after(model.log_end)
        elif action == "expire" and model.log and first == 0:
            model.log_start = max(model.log_start, rng.choice(model.log).physical_offset)
            table.delete_expired(model.log_start)
        check(table, model)


def test_one_thread_may_write_and_flush_while_another_dispatches_and_reads(tmp_path):
    table, failures, done = QueueTable(tmp_path, queue_file_bytes=20_000), [], threading.Event()

    def flush():
        try:
            while not done.is_set():
                table.flush()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for number in range(0, 20_000, 10):
        table.dispatch(
            [DispatchRequest("T", at % 2, at * 100, 100, at, at, at // 2) for at in range(number, number + 10)]
        )
        queue = table.get("T", 0)
        first = max(0, queue.max_offset - 700)
        assert [unit.tags_code for unit in queue.units(first, 1000)] == list(range(first * 2, number + 10, 2))
    done.set()
    thread.join()
    assert not failures
    table.close()
    again = QueueTable(tmp_path, queue_file_bytes=20_000)
    again.load(clean=True)
    assert [queue.max_offset for queue in again.queues()] == [10_000, 10_000]
    assert table.flushed_end == again.end_physical == 2_000_000


@pytest.mark.parametrize("kind", ["plain", "batch"])
def test_a_queue_file_torn_at_any_byte_of_its_last_unit_recovers_to_whole_units(kind, tmp_path):
    table = QueueTable(tmp_path, **OPTIONS)
    requests = [DispatchRequest(kind, 0, number * 100 + 100, 100, number, 7, number) for number in range(4)]
    table.dispatch(requests)
    table.close()
    (path,) = (tmp_path / ("consumequeue" if kind == "plain" else "batchconsumequeue") / kind / "0").iterdir()
    whole, unit = path.read_bytes(), 20 if kind == "plain" else 46
    for torn in range(unit):
        path.write_bytes(whole[: 3 * unit + torn].ljust(len(whole), b"\0"))
        again = QueueTable(tmp_path, **OPTIONS)
        again.load(clean=False)
        assert again.max_offset(kind, 0) in (3, 4)
        again.truncate_after(400)  # the log says how much of the last unit to believe
        again.dispatch(requests)
        again.close()
        assert path.read_bytes() == whole
