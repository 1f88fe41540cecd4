"""Recovery of our own stores: after kill -9, after torn writes, after bits that flipped."""

import os
import random
import shutil

import pytest
from tests.store.store_at import NOW, SEGMENT, bodies, fill, kill, open_store, write_log

from twinlog.store.errors import RecoveryStopped, SegmentSizeMismatch
from twinlog.store.recovery import recovery
from twinlog.store.scan.scan import scan


def expected_bodies(count, queue_id, queues=2, without=()):
    return [b"body %d" % n for n in range(count) if n % queues == queue_id and n not in without]


def test_a_killed_store_keeps_every_message_and_rebuilds_what_was_only_in_memory(tmp_path):
    store = open_store(tmp_path)
    fill(store, 300)
    end = store.log_end
    kill(store)
    with open_store(tmp_path) as store:
        assert not store.report.clean and store.log_end == end and not store.report.damages
        for queue_id in (0, 1):
            assert bodies(store, queue_id=queue_id) == expected_bodies(300, queue_id)
        assert len(store.query("TopicA", "key-299", 10, 0, 1 << 60).buffers) == 1
        assert fill(store, 2, start=300)[0].queue_offset == 150


def test_the_file_cut_at_every_byte_of_the_last_record_loses_that_record_and_nothing_else(tmp_path):
    store = open_store(tmp_path)
    *_, before, last = fill(store, 5, queues=1)
    record = bytes(store.record_at(last.physical_offset))
    kill(store)
    for kept in range(len(record)):
        shutil.copytree(tmp_path / "store", tmp_path / str(kept) / "store")
        write_log(tmp_path / str(kept), last.physical_offset, record[:kept] + bytes(len(record) - kept))
        with open_store(tmp_path / str(kept)) as store:
            assert store.log_end == before.end == last.physical_offset
            assert bodies(store) == expected_bodies(4, 0, 1)
            assert not any(store.commit_log.segments[0].map[store.log_end :])
            assert fill(store, 1, queues=1, start=4)[0].queue_offset == 4
            assert bodies(store) == expected_bodies(5, 0, 1)
        shutil.rmtree(tmp_path / str(kept))


@pytest.mark.parametrize("messages", [5, 200])  # in one segment, and in several
def test_a_last_segment_that_was_cut_short_keeps_every_whole_record(tmp_path, messages):
    store = open_store(tmp_path)
    *_, before, last = fill(store, messages, queues=1)
    assert (before.physical_offset >= SEGMENT) == (messages == 200)
    kill(store)
    name = f"{last.physical_offset - last.physical_offset % SEGMENT:020d}"
    for lost in (1, last.size // 2, last.size - 1, last.size):
        place = tmp_path / str(lost)
        shutil.copytree(tmp_path / "store", place / "store")
        os.truncate(place / "store" / "commitlog" / name, (last.end - lost) % SEGMENT)
        with open_store(place) as store:
            assert store.log_end == before.end
            assert bodies(store) == expected_bodies(messages - 1, 0, 1)
            assert fill(store, 1, queues=1, start=messages - 1)[0].queue_offset == messages - 1
        assert (place / "store" / "commitlog" / name).stat().st_size == SEGMENT


def test_a_single_file_of_another_size_is_refused(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 5)
    with pytest.raises(SegmentSizeMismatch, match="mappedFileSizeCommitLog"):
        open_store(tmp_path, settings={"segment_bytes": 2 * SEGMENT})


def test_random_damage_anywhere_loses_only_the_records_it_touches(tmp_path):
    store = open_store(tmp_path)
    places = fill(store, 200)
    kill(store)
    chance = random.Random(20261115)
    for round_number in range(25):
        place = tmp_path / str(round_number)
        shutil.copytree(tmp_path / "store", place / "store")
        begin = chance.randrange(0, places[-1].physical_offset - 400)
        length = chance.choice([1, 1, 4, 60, 300])
        write_log(place, begin, bytes(chance.randrange(256) for _ in range(min(length, SEGMENT - begin % SEGMENT))))
        touched = {n for n, one in enumerate(places) if one.end > begin and one.physical_offset < begin + length}
        with open_store(place) as store:
            assert store.log_end == places[-1].end, (begin, length)
            found = {body for queue_id in (0, 1) for body in bodies(store, queue_id=queue_id)}
            lost = {n for n in range(200) if b"body %d" % n not in found}
            assert lost <= touched, (begin, length)
            assert (store.max_offset("TopicA", 0), store.max_offset("TopicA", 1)) == (100, 100)
        with open_store(place) as store:  # what Java would do next: walk from the start and find no fault
            assert store.report.clean and not store.report.damages
            ends = []
            for segment in store.commit_log.segments:
                *_, last = scan(segment.map, 0, segment.size, segment.base)
                ends.append(last.stop.reason.name)
            assert ends == ["BLANK"] * (len(ends) - 1) + ["END"]
        shutil.rmtree(place)


@pytest.mark.parametrize("what", ["end of a file", "start of a file", "whole file", "zero page"])
def test_damage_at_the_edges_of_files_is_stepped_over(tmp_path, what):
    store = open_store(tmp_path)
    places = fill(store, 300, queues=1)
    kill(store)
    first_of = [next(n for n, one in enumerate(places) if one.physical_offset >= k * SEGMENT) for k in range(3)]
    begin, end = {
        "end of a file": (places[first_of[1] - 1].physical_offset, SEGMENT),
        "start of a file": (SEGMENT, SEGMENT + 10),
        "whole file": (SEGMENT, 2 * SEGMENT),
        "zero page": (4096, 8192),
    }[what]
    write_log(tmp_path, begin, bytes(end - begin) if what == "zero page" else b"\xff" * (end - begin))
    touched = {n for n, one in enumerate(places) if one.end > begin and one.physical_offset < end}
    with open_store(tmp_path) as store:
        assert store.log_end == places[-1].end
        assert set(bodies(store)) == {b"body %d" % n for n in range(300) if n not in touched}
        assert store.max_offset("TopicA", 0) == 300
        assert store.report.damages[0].begin <= begin
    with open_store(tmp_path) as store:
        assert not store.report.damages and store.log_end == places[-1].end


def test_old_records_behind_a_cut_do_not_come_back(tmp_path):
    clock = iter(range(NOW, NOW + 10_000))
    store = open_store(tmp_path, clock_ms=lambda: next(clock))
    places = fill(store, 20, queues=1)
    stale = bytes(store.commit_log.slice(0, store.log_end))
    store.truncate(places[5].physical_offset)
    new = fill(store, 3, queues=1, start=100)  # the queue goes on at offset 5 with other messages
    kill(store)
    write_log(tmp_path, new[-1].end, stale[new[-1].end :])  # what Java would have left there
    with open_store(tmp_path) as store:
        assert store.log_end == new[-1].end
        assert bodies(store) == [*expected_bodies(5, 0, 1), b"body 100", b"body 101", b"body 102"]
        assert not any(store.commit_log.segments[0].map[store.log_end :])


def test_an_extra_file_of_zeros_left_by_a_crash_is_removed(tmp_path):
    store = open_store(tmp_path)
    fill(store, 60)
    end = store.log_end
    kill(store)
    (tmp_path / "store" / "commitlog" / f"{SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    with open_store(tmp_path) as store:
        assert store.log_end == end and len(store.commit_log.segments) == 1
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) == 1


def test_missing_queues_and_index_are_built_again_from_the_whole_log(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 300)
    for name in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / "store" / name)
    with open_store(tmp_path) as store:
        assert store.report.clean and store.report.scanned_from == 0 and store.report.dispatched == 300
        assert bodies(store, queue_id=1) == expected_bodies(300, 1)
        assert len(store.query("TopicA", "key-0", 10, 0, 1 << 60).buffers) == 1


def test_damage_in_a_cleanly_closed_store_is_found_in_earlier_files_too(tmp_path):
    with open_store(tmp_path) as store:
        places = fill(store, 300, queues=1)
    write_log(tmp_path, places[20].physical_offset + 89, b"\xff")
    with open_store(tmp_path) as store:
        assert [damage.begin for damage in store.report.damages] == [places[20].physical_offset]
        assert b"body 20" not in bodies(store) and len(bodies(store)) == 300


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_unit_whose_bits_flipped_is_written_again_from_the_log(tmp_path, clean):
    store = open_store(tmp_path)
    fill(store, 300)
    if clean:
        store.close()
    else:
        store.flush_queues()
        kill(store)
    queue = tmp_path / "store" / "consumequeue" / "TopicA"
    for path, at, data in (
        (queue / "0" / ("0" * 20), 105, b"\xff"),  # an offset beyond the log
        (queue / "0" / ("0" * 20), 209, b"\xff\xff"),  # a size
        (queue / "1" / "00000000000000002000", 986, b"\x01\x01"),  # the last unit
    ):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
    with open_store(tmp_path) as store:
        assert store.report.units_repaired == 3
        for queue_id in (0, 1):
            assert bodies(store, queue_id=queue_id) == expected_bodies(300, queue_id)


def test_records_of_a_topic_that_was_deleted_do_not_come_back_into_its_new_queues(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 40)
        store.delete_topic("TopicA")
        fill(store, 20, start=100)
    with open_store(tmp_path) as store:
        assert store.report.units_repaired == store.report.dispatched == 0
        assert bodies(store) == [b"body %d" % n for n in range(100, 120, 2)]


def test_queues_without_a_log_are_removed(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 10)
    shutil.rmtree(tmp_path / "store" / "commitlog")
    with open_store(tmp_path) as store:
        assert store.log_end == 0 and store.max_offset("TopicA", 0) == 0
        assert fill(store, 1)[0].queue_offset == 0


def test_the_checkpoint_lets_recovery_skip_what_is_surely_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "SCAN_BYTES_MIN", 0)
    clock = iter(range(NOW, NOW + 10**9, 1000))
    store = open_store(tmp_path, clock_ms=lambda: next(clock))
    fill(store, 500)
    store.flush()
    store.flush_queues()
    store.save_checkpoint()
    fill(store, 10, start=500)
    end = store.log_end
    kill(store)
    with open_store(tmp_path) as store:
        assert store.log_end == end
        assert store.report.scanned_from == (end - 10 * 170) // SEGMENT * SEGMENT > 0
        assert store.report.dispatched <= 20
        assert bodies(store) == expected_bodies(510, 0)


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_recovery_that_was_stopped_is_done_by_the_next_start(tmp_path, looks):
    store = open_store(tmp_path)
    fill(store, 300)
    kill(store)
    asked = iter([False] * looks)
    with pytest.raises(RecoveryStopped, match="bytes to go: the next start does it again"):
        open_store(tmp_path, stopped=lambda: next(asked, True))
    with open_store(tmp_path) as store:
        assert len(bodies(store)) + len(bodies(store, queue_id=1)) == 300
