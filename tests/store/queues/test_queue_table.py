import json
import os
import threading

import pytest
from tests.store import golden

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import ForeignFile, QueueTypeMismatch, SegmentSizeMismatch
from twinlog.store.file_ops import FileOps
from twinlog.store.file_pool import FLUSH_EACH_MAX
from twinlog.store.queues import queue_table
from twinlog.store.queues.queue_table import TAIL_BYTES_MAX, QueueTable
from twinlog.store.queues.unit_queue import UnitQueue

SIZES = {"queue_file_bytes": 20_000, "batch_file_bytes": 46_000, "ext_file_bytes": 65_536}


def table_at(path, **options) -> QueueTable:
    return QueueTable(path, **{**SIZES, "topic_kind": golden.topic_kind, "ops": golden.NoFlush(), **options})


def request(number, *, topic="TopicA", queue_id=0, size=100, queue_offset=None, **more) -> DispatchRequest:
    queue_offset = number if queue_offset is None else queue_offset
    return DispatchRequest(topic, queue_id, number * 100, size, number, 1_000 + number, queue_offset, **more)


@pytest.mark.parametrize("name", ["normal", "crash", "cqext"])
@pytest.mark.parametrize("batch", [1, 1000])
def test_dispatching_a_java_log_again_gives_java_queue_files_byte_for_byte(name, batch, tmp_path):
    table = table_at(tmp_path / "made", ext_enabled=name == "cqext")
    requests = golden.requests(name)
    for at in range(0, len(requests), batch):
        table.dispatch(requests[at : at + batch])
        if batch == 1:
            table.write_pending()
    table.close()
    golden.same_files(tmp_path / "made", golden.unpack(name, tmp_path / "java"), "*consumequeue*/**/*")


@pytest.mark.parametrize("name", ["normal", "crash"])
@pytest.mark.parametrize("clean", [True, False])
def test_loaded_java_queues_have_the_ranges_that_java_finds(name, clean, tmp_path):
    table = table_at(golden.unpack(name, tmp_path))
    table.load(clean=clean)
    if name == "normal":
        java = golden.manifest(name)["recoveredByJava"]
    else:
        cases = json.loads((golden.VECTORS / "recovery-cases.json").read_text())["cases"]
        java = next(case for case in cases if case["name"] == "crash_asis")["javaResult"]
    expected = {key: (queue["min"], queue["max"]) for key, queue in java["queues"].items() if queue["max"]}
    found = {f"{queue.topic}-{queue.queue_id}": (queue.min_offset, queue.max_offset) for queue in table.queues()}
    assert found == expected
    assert table.end_physical == java["maxPhyOffset"]


def test_a_second_dispatch_of_the_same_log_changes_nothing(tmp_path):
    table = table_at(golden.unpack("normal", tmp_path / "store"))
    table.load(clean=False)
    table.dispatch(golden.requests("normal"))
    table.close()
    golden.same_files(tmp_path / "store", golden.unpack("normal", tmp_path / "java"), "*consumequeue*/**/*")


def test_the_units_of_a_torn_tail_leave_and_come_back(tmp_path):
    java, store = golden.unpack("normal", tmp_path / "java"), golden.unpack("normal", tmp_path / "store")
    requests = golden.requests("normal")
    for torn in range(len(requests)):
        table = table_at(store)
        table.load(clean=False)
        table.truncate_after(requests[torn].physical_offset)
        assert table.end_physical <= requests[torn].physical_offset
        table.close()
        again = table_at(store)
        again.load(clean=False)
        assert again.end_physical <= requests[torn].physical_offset
        again.dispatch(requests)
        again.close()
        golden.same_files(store, java, "*consumequeue*/**/*")


def test_the_extension_is_cut_with_its_queue(tmp_path):
    requests = golden.requests("cqext")
    table = table_at(golden.unpack("cqext", tmp_path / "store"), ext_enabled=True)
    table.load(clean=False)
    table.truncate_after(requests[1].physical_offset)
    table.dispatch(requests)
    table.close()
    golden.same_files(tmp_path / "store", golden.unpack("cqext", tmp_path / "java"), "*consumequeue*/**/*")


def test_queue_files_have_their_full_size_and_hardly_any_blocks(tmp_path):
    table = QueueTable(tmp_path)
    table.dispatch([request(0)])
    table.write_pending()
    stat = os.stat(tmp_path / "consumequeue/TopicA/0/00000000000000000000")
    assert stat.st_size == 6_000_000
    assert stat.st_blocks * 512 <= 64 * 1024


def test_many_short_tails_wait_until_writing_them_is_cheap(tmp_path, monkeypatch):
    monkeypatch.setattr(queue_table, "FEW_QUEUES", 3)
    table = table_at(tmp_path)
    table.dispatch([request(number, topic=f"T{number}", queue_offset=0) for number in range(3)])
    assert table.is_write_cheap, "the queues are few"
    table.dispatch([request(3, topic="T3", queue_offset=0)])
    assert not table.is_write_cheap
    more = queue_table.UNITS_PER_WRITE * 4 - 4
    table.dispatch([request(4 + number, topic="T0", queue_offset=1 + number) for number in range(more)])
    assert table.is_write_cheap, "the tails are long"
    table.write_pending()
    table.dispatch([request(1_000 + number, topic=f"N{number}", queue_offset=0) for number in range(4)])
    assert not table.is_write_cheap
    monkeypatch.setattr(queue_table, "TAIL_UNITS_MAX", 4)
    assert table.is_write_cheap, "all of them together are large"


def test_prepared_and_rolled_back_records_are_not_queued(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(0, sys_flag=0x4), request(1, sys_flag=0xC), request(2, sys_flag=0x8, queue_offset=0)])
    assert table.max_offset("TopicA", 0) == 1


def test_a_queue_whose_history_starts_late_begins_with_placeholders(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(1003)])
    assert (table.min_offset("TopicA", 0), table.max_offset("TopicA", 0)) == (1003, 1004)
    table.close()
    (path,) = (tmp_path / "consumequeue/TopicA/0").iterdir()
    assert path.name == "00000000000000020000"
    placeholder = bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
    assert path.read_bytes()[:80] == placeholder * 3 + (100_300).to_bytes(8) + (100).to_bytes(4) + (1003).to_bytes(8)
    again = table_at(tmp_path)
    again.load(clean=False)
    assert (again.min_offset("TopicA", 0), again.max_offset("TopicA", 0)) == (1003, 1004)
    assert again.get("TopicA", 0).unit(1002) is None
    assert again.get("TopicA", 0).unit(1003).physical_offset == 100_300


def test_placeholders_that_the_disk_refuses_wait_in_memory(tmp_path):
    ops = FullDisk(0)
    table = table_at(tmp_path, ops=ops)
    table.dispatch([request(1003), request(1004)])
    assert table.get("TopicA", 0).unit(1004).physical_offset == 100_400
    with pytest.raises(OSError, match="No space"):
        table.flush()
    ops.writes_left = -1
    table.close()
    again = table_at(tmp_path)
    again.load(clean=False)
    assert (again.min_offset("TopicA", 0), again.max_offset("TopicA", 0)) == (1003, 1005)


def test_lost_records_leave_their_places_pointing_at_the_next_message(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(0), request(3)])
    queue = table.get("TopicA", 0)
    assert [unit.physical_offset for unit in queue.units(0, 9)] == [0, 300, 300, 300]
    assert queue.unit(3).tags_code == 3


def test_an_absurd_queue_offset_does_not_fill_the_disk(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(0), request(1, queue_offset=1 << 40), request(2, queue_offset=2)])
    assert [unit.physical_offset for unit in table.get("TopicA", 0).units(0, 9)] == [0, 100, 200]


def test_retention_raises_min_offsets_and_deletes_whole_files(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(number) for number in range(3_500)])
    table.dispatch([request(3_500 + number, topic="TopicBatchCQ", queue_offset=number) for number in range(2_500)])
    table.write_pending()
    assert table.delete_expired(250_050) == 2
    queue = table.get("TopicA", 0)
    assert (queue.min_offset, queue.max_offset) == (2501, 3500)
    assert not queue.read(0, 1)
    assert queue.unit(2501).physical_offset == 250_100
    assert table.delete_expired(600_000) == 3  # the last file of each always stays
    assert (queue.min_offset, queue.max_offset) == (3500, 3500)
    assert table.min_offset("TopicBatchCQ", 0) == table.max_offset("TopicBatchCQ", 0) == 2500
    table.close()
    again = table_at(tmp_path)
    again.load(clean=True)
    again.correct_min(600_000)
    assert [(queue.min_offset, queue.max_offset) for queue in again.queues()] == [(3500, 3500), (2500, 2500)]


def test_a_hole_in_the_last_three_files_ends_a_queue_after_a_crash(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(number) for number in range(4_500)])
    table.close()
    with open(tmp_path / "consumequeue/TopicA/0/00000000000000060000", "r+b") as file:
        file.seek(500 * 20)
        file.write(bytes(20))
    again = table_at(tmp_path)
    again.load(clean=False)
    assert again.max_offset("TopicA", 0) == 3500
    again.dispatch([request(number) for number in range(4_500)])
    assert [unit.physical_offset for unit in again.get("TopicA", 0).units(3_498, 4)] == [349800, 349900, 350000, 350100]


def test_long_tails_are_written_without_being_asked(tmp_path):
    table = table_at(tmp_path)
    count = TAIL_BYTES_MAX // 20 + 1
    table.dispatch([request(number) for number in range(count)])
    assert table.get("TopicA", 0).written == count
    assert table.written_end == 0  # other queues' tails are still in memory


class FullDisk(golden.NoFlush):
    def __init__(self, writes_left):
        self.writes_left = writes_left

    def write(self, descriptor, data, at):
        if self.writes_left == 0:
            raise OSError(28, "No space left on device")
        self.writes_left -= 1
        super().write(descriptor, data, at)


def test_dispatching_does_not_wait_for_a_thread_that_writes(tmp_path):
    table, locked, released = table_at(tmp_path), threading.Event(), threading.Event()

    def write_slowly():
        with table.files.writing:
            locked.set()
            released.wait()

    thread = threading.Thread(target=write_slowly)
    thread.start()
    locked.wait()
    count = TAIL_BYTES_MAX // 20 + 10
    table.dispatch([request(number) for number in range(count)])  # returns although the tail is overlong
    assert table.get("TopicA", 0).written == 0
    released.set()
    thread.join()
    table.dispatch([request(count)])
    assert table.get("TopicA", 0).written == count + 1
    assert [unit.physical_offset for unit in table.get("TopicA", 0).units(count - 1, 5)] == [
        (count - 1) * 100,
        count * 100,
    ]


def test_a_topic_that_is_deleted_while_old_files_go_leaves_nothing_behind(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(number) for number in range(3_000)])
    queue, delete = table.get("TopicA", 0), UnitQueue.delete_files_below

    def delete_topic_first(self, unit):
        other = threading.Thread(target=table.delete_topic, args=("TopicA",))
        other.start()
        deleted = delete(self, unit)
        others.append(other)
        return deleted

    others: list[threading.Thread] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UnitQueue, "delete_files_below", delete_topic_first)
        table.delete_expired(250_000)
    for other in others:
        other.join()
    assert table.get("TopicA", 0) is None
    assert not list((tmp_path / "consumequeue").glob("TopicA/**/*"))
    assert (queue.end, queue.written) == (0, 0)


@pytest.mark.parametrize("writes", range(6))
def test_a_full_disk_is_an_error_and_the_units_wait_in_memory(writes, tmp_path):
    ops = FullDisk(writes)
    table = table_at(tmp_path, ops=ops)
    requests = [request(number, queue_id=number % 3, queue_offset=number // 3) for number in range(3_600)]
    table.dispatch(requests)
    if writes < 6:
        with pytest.raises(OSError, match="No space"):
            table.flush()
    assert table.flushed_end == 0
    assert [unit.physical_offset for unit in table.get("TopicA", 2).units(1_199, 2)] == [359_900]
    ops.writes_left = -1
    table.flush()
    assert table.flushed_end == 360_000
    again = table_at(tmp_path)
    again.load(clean=False)
    assert [queue.max_offset for queue in again.queues()] == [1200] * 3
    assert again.end_physical == 360_000


def test_only_a_bounded_number_of_files_is_open(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(number, topic=f"T{number}", queue_offset=0) for number in range(600)])
    table.close()
    table.load(clean=True)
    assert sum(queue.max_offset for queue in table.queues()) == 600
    assert len(table.files._open) <= 256


def test_deleting_a_topic_removes_its_directories(tmp_path):
    table = table_at(tmp_path, ext_enabled=True)
    table.dispatch([request(0), request(1, topic="Other", queue_offset=0)])
    table.flush()
    table.delete_topic("TopicA")
    table.close()
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["Other"]
    assert sorted(path.name for path in (tmp_path / "consumequeue_ext").iterdir()) == ["Other"]
    assert table.get("TopicA", 0) is None


def test_queues_of_the_wrong_kind_stop_the_start(tmp_path):
    (tmp_path / "batchconsumequeue/TopicBatchCQ/0").mkdir(parents=True)
    table = QueueTable(tmp_path, **SIZES)
    with pytest.raises(QueueTypeMismatch, match=r"TopicBatchCQ are BatchCQ, its queue\.type attribute is SimpleCQ"):
        table.load(clean=True)


def test_files_that_are_not_queue_files_stop_the_start(tmp_path):
    directory = tmp_path / "consumequeue/TopicA/0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000").write_bytes(bytes(100))
    with pytest.raises(SegmentSizeMismatch, match="instead of 20000 by mappedFileSizeConsumeQueue"):
        table_at(tmp_path).load(clean=True)
    (directory / "notes.txt").write_bytes(b"")
    with pytest.raises(ForeignFile, match=r"notes\.txt"):
        table_at(tmp_path).load(clean=True)


def test_an_empty_last_file_is_removed(tmp_path):
    table = table_at(tmp_path)
    table.dispatch([request(number) for number in range(3)])
    table.close()
    (tmp_path / "consumequeue/TopicA/0/00000000000000020000").touch()
    table = table_at(tmp_path)
    table.load(clean=True)
    assert table.max_offset("TopicA", 0) == 3
    assert len(list((tmp_path / "consumequeue/TopicA/0").iterdir())) == 1


class FailingFlush(FileOps):
    def __init__(self, good):
        self.good = good
        self.flushed = 0

    def flush_filesystem(self, descriptor):
        super().flush_filesystem(descriptor)
        self.flush(descriptor)

    def flush(self, descriptor):
        self.good -= 1
        if self.good == -1:
            raise OSError(5, "Input/output error")
        self.flushed += 1


@pytest.mark.parametrize("good", range(3))
def test_a_failed_flush_is_tried_again_for_every_file_it_left(good, tmp_path):
    ops = FailingFlush(good)
    table = table_at(tmp_path, ops=ops)
    table.dispatch([request(number, queue_id=number, queue_offset=0) for number in range(3)])
    with pytest.raises(OSError, match="Input/output"):
        table.flush()
    assert (table.written_end, table.flushed_end) == (300, 0)
    table.flush()
    assert (table.flushed_end, table.flushed_timestamp, ops.flushed) == (300, 1_002, 3)
    table.flush()
    assert ops.flushed == 3  # nothing was written since


def test_very_many_files_are_flushed_with_one_call(tmp_path):
    ops = FailingFlush(0)
    table = table_at(tmp_path, ops=ops)
    table.dispatch([request(number, queue_id=number, queue_offset=0) for number in range(FLUSH_EACH_MAX + 1)])
    with pytest.raises(OSError, match="Input/output"):
        table.flush()
    assert table.flushed_end == 0
    table.flush()
    assert (table.flushed_end, ops.flushed) == (100 * (FLUSH_EACH_MAX + 1), 1)
