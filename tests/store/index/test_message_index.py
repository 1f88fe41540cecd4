import json
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store import golden

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import OnDisk, SegmentSizeMismatch
from twinlog.store.index.index_file import HEADER
from twinlog.store.index.message_index import PENDING_MAX, Index
from twinlog.store.scan.key_hash import hash_key

FOREVER = (0, 1 << 60)
SIZES = {"slot_count": 1000, "entry_max": 4000}


class Clock:
    """Stands still: file names must differ nevertheless."""

    def __call__(self) -> int:
        return 1_794_728_468_925


def index_at(path, **options) -> Index:
    return Index(path, **{**SIZES, "clock_ms": Clock(), "ops": golden.NoFlush(), **options})


def request(number, *, topic="TopicA", keys="", uniq_key=None, sys_flag=0) -> DispatchRequest:
    uniq_key = f"ID{number:030d}" if uniq_key is None else uniq_key
    return DispatchRequest(
        topic, 0, number * 100, 100, 0, 1_000_000 + number * 500, number, keys, uniq_key, sys_flag=sys_flag
    )


def find(index, key, topic="TopicA", count_max=64):
    return index.query(topic, key, count_max, *FOREVER).physical_offsets


def the_only_file(path):
    (file,) = (path / "index").iterdir()
    return file


@pytest.mark.parametrize("name", ["normal", "crash", "cqext"])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_indexing_a_java_log_again_gives_the_java_file_byte_for_byte(name, batch, tmp_path):
    index = index_at(tmp_path / "made")
    requests = golden.requests(name)
    for at in range(0, len(requests), batch):
        index.dispatch(requests[at : at + batch])
        index.drain()
    index.close()
    java = the_only_file(golden.unpack(name, tmp_path / "java")).read_bytes()
    assert the_only_file(tmp_path / "made").read_bytes() == java


def test_a_java_index_finds_every_key_of_its_log(tmp_path):
    index = index_at(golden.unpack("normal", tmp_path))
    index.load(clean=True)
    for entry in golden.manifest("normal")["indexKeysInOrder"]:
        topic, _, key = entry["key"].partition("#")
        assert entry["phyOffset"] in find(index, key, topic)


@pytest.mark.parametrize("clean", [True, False])
def test_dispatching_known_records_again_adds_nothing(clean, tmp_path):
    index = index_at(golden.unpack("crash", tmp_path / "store"))
    index.load(clean=clean)
    index.dispatch(golden.requests("crash"))
    index.close()
    java = the_only_file(golden.unpack("crash", tmp_path / "java")).read_bytes()
    assert the_only_file(tmp_path / "store").read_bytes() == java


def test_an_index_cut_anywhere_is_completed_from_the_log(tmp_path):
    requests = golden.requests("normal")
    file = the_only_file(golden.unpack("normal", tmp_path / "java"))
    java = file.read_bytes()
    for cut in range(len(requests)):
        store = tmp_path / str(cut)
        (store / "index").mkdir(parents=True)
        (store / "index" / file.name).write_bytes(java)
        index = index_at(store)
        index.load(clean=False)
        index.truncate_after(requests[cut].physical_offset)
        assert all(offset < requests[cut].physical_offset for offset in find(index, "key-1"))
        index.dispatch(requests)
        index.close()
        assert the_only_file(store).read_bytes() == java


def test_a_record_whose_keys_were_entered_in_part_gets_the_rest(tmp_path):
    """Java enters key by key, so a crash may fall between two keys of one record."""
    requests = golden.requests("normal")
    path = the_only_file(golden.unpack("normal", tmp_path))
    java = path.read_bytes()
    header = list(HEADER.unpack_from(java))
    header[3], header[5] = 269, 5  # record 269 has four keys, entries 3 to 6
    path.write_bytes(HEADER.pack(*header) + java[40:])
    index = index_at(tmp_path)
    index.load(clean=False)
    index.dispatch(requests)
    index.close()
    assert path.read_bytes() == java


def test_a_lost_slot_table_is_computed_again_after_a_crash(tmp_path):
    index = index_at(tmp_path)
    index.dispatch([request(number) for number in range(3000)])
    index.drain()  # entries and header are in the file, slots are not
    path = the_only_file(tmp_path)
    assert not any(path.read_bytes()[40:4040])
    again = index_at(tmp_path)
    again.load(clean=False)
    assert find(again, f"ID{17:030d}") == [1700]
    index.close()
    again.close()
    assert path.read_bytes()[40:4040] == np.asarray(index._files[0]._slots).tobytes()


def test_entries_that_make_no_sense_end_the_file_after_a_crash(tmp_path):
    index = index_at(tmp_path)
    index.dispatch([request(number) for number in range(10)])
    index.close()
    with open(the_only_file(tmp_path), "r+b") as file:
        file.seek(40 + 4000 + 20 * 6)
        file.write(bytes(20))
    again = index_at(tmp_path)
    again.load(clean=False)
    assert again.end_physical == 400
    again.dispatch([request(number) for number in range(10)])
    assert [find(again, f"ID{number:030d}") for number in range(10)] == [[number * 100] for number in range(10)]


def test_a_full_file_is_followed_by_one_that_begins_at_its_end(tmp_path):
    index = index_at(tmp_path, entry_max=4)
    index.dispatch([request(number) for number in range(5)])
    index.flush()
    first, second = sorted((tmp_path / "index").iterdir())
    assert (first.name, second.name) < (second.name, "3")
    assert HEADER.unpack_from(first.read_bytes()) == (1_000_000, 1_001_000, 0, 200, 3, 4)
    assert HEADER.unpack_from(second.read_bytes()) == (1_001_500, 1_002_000, 300, 400, 2, 3)
    # Java's quirk: the first entry's seconds count from the end of the file before
    assert second.read_bytes()[40 + 4000 + 20 :][12:16] == (0).to_bytes(4)
    assert [find(index, f"ID{number:030d}") for number in range(5)] == [[number * 100] for number in range(5)]
    assert index.full_timestamp == 1_001_000


def test_a_row_of_full_files_is_byte_for_byte_what_java_writes(tmp_path):
    java = json.loads((golden.VECTORS / "store-classes.json").read_text())["index"]
    index = index_at(tmp_path, slot_count=java["slots"], entry_max=java["entries"])
    for put in java["puts"]:
        topic, _, key = put["key"].partition("#")
        index.dispatch([DispatchRequest(topic, 0, put["phyOffset"], 100, 0, put["storeTimestamp"], 0, uniq_key=key)])
    index.close()
    assert [path.read_bytes().hex() for path in sorted((tmp_path / "index").iterdir())] == java["files"]


def test_keys_of_one_record_may_span_two_files_and_are_not_entered_twice(tmp_path):
    index = index_at(tmp_path, entry_max=4)
    requests = [request(0), request(1, keys="a b c")]
    index.dispatch(requests)
    index.close()
    again = index_at(tmp_path, entry_max=4)
    again.load(clean=False)
    again.dispatch([*requests, request(2, keys="c")])
    assert [find(again, key) for key in ("a", "b", "c")] == [[100], [100], [200, 100]]


def test_a_query_is_newest_first_and_limited_in_number_and_time(tmp_path):
    index = index_at(tmp_path, entry_max=30)
    index.dispatch([request(number, keys="same") for number in range(40)])
    assert find(index, "same", count_max=3) == [3900, 3800, 3700]
    assert len(find(index, "same")) == 40
    found = index.query("TopicA", "same", 64, 1_005_000, 1_006_000)
    assert {1000, 1100, 1200} <= set(found.physical_offsets) <= {800, 900, 1000, 1100, 1200, 1300}
    assert (found.last_update_timestamp, found.last_update_offset) == (1_019_500, 3900)


@pytest.mark.parametrize("entry_max", [30, 4000])
def test_a_query_in_memory_gives_the_same_answers(tmp_path, entry_max):
    index = index_at(tmp_path, entry_max=entry_max)
    index.dispatch([request(number, keys=f"k{number % 50}") for number in range(100)])
    for key in (f"k{number}" for number in range(60)):
        for count_max, times in ((64, FOREVER), (1, FOREVER), (0, FOREVER), (64, (1_005_000, 1_006_000))):
            asked = "TopicA", key, count_max, *times
            assert index.query_in_memory(*asked) == index.query(*asked)


def test_a_query_in_memory_waits_neither_for_the_disk_nor_for_a_flush_and_does_not_walk_far(tmp_path, monkeypatch):
    index = index_at(tmp_path, slot_count=1)
    index.dispatch([request(number) for number in range(64)])
    asked = "TopicA", "nobody", 64, *FOREVER
    assert index.query_in_memory(*asked).physical_offsets == []
    with monkeypatch.context() as patched:
        patched.setattr("twinlog.store.file_pool.bytes_in_memory", lambda descriptor, at, count: count - 1)
        with pytest.raises(OnDisk):
            index.query_in_memory(*asked)
    taken, done = threading.Event(), threading.Event()

    def flush() -> None:
        with index._lock:
            taken.set()
            done.wait(60)

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        assert taken.wait(60)
        with pytest.raises(OnDisk):
            index.query_in_memory(*asked)
    finally:
        done.set()
        flushing.join()
    index.dispatch([request(64)])
    with pytest.raises(OnDisk):
        index.query_in_memory(*asked)
    assert find(index, "nobody") == []


def test_rolled_back_records_are_not_indexed_but_prepared_ones_are(tmp_path):
    index = index_at(tmp_path)
    index.dispatch([request(0, keys="k", sys_flag=0xC), request(1, keys="k", sys_flag=0x4)])
    assert find(index, "k") == [100]


def test_many_pending_records_are_entered_without_being_asked(tmp_path):
    index = index_at(tmp_path)
    index.dispatch([request(number) for number in range(PENDING_MAX - 1)])
    assert index.is_empty
    index.dispatch([request(PENDING_MAX)])
    assert not index.is_empty


def test_files_of_deleted_log_records_go_but_never_the_last(tmp_path):
    index = index_at(tmp_path, entry_max=4)
    index.dispatch([request(number) for number in range(12)])
    index.drain()
    assert index.delete_expired(301) == 1
    assert index.delete_expired(1 << 40) == 2
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert find(index, f"ID{11:030d}") == [1100]


def test_truncation_removes_whole_files(tmp_path):
    index = index_at(tmp_path, entry_max=4)
    index.dispatch([request(number) for number in range(12)])
    index.drain()
    index.truncate_after(400)
    assert (index.end_physical, len(list((tmp_path / "index").iterdir()))) == (300, 2)
    index.truncate_after(0)
    assert index.is_empty
    assert list((tmp_path / "index").iterdir()) == []


def test_a_file_of_other_settings_stops_the_start(tmp_path):
    index = index_at(tmp_path)
    index.dispatch([request(0)])
    index.close()
    with pytest.raises(SegmentSizeMismatch, match="instead of 140 by maxHashSlotNum and maxIndexNum"):
        index_at(tmp_path, slot_count=20, entry_max=1).load(clean=True)


def test_a_repaired_file_stays_sparse(tmp_path):
    index = index_at(tmp_path, slot_count=1_000_000)
    index.dispatch([request(number) for number in range(3)])
    index.drain()
    again = index_at(tmp_path, slot_count=1_000_000)
    again.load(clean=False)
    again.close()
    assert the_only_file(tmp_path).stat().st_blocks * 512 < 200_000
    assert find(again, f"ID{1:030d}") == [100]


def test_one_thread_may_flush_while_another_dispatches_and_asks(tmp_path):
    index, failures, done = index_at(tmp_path, entry_max=1000), [], threading.Event()

    def flush():
        try:
            while not done.is_set():
                index.flush()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for number in range(0, 6000, 20):
        index.dispatch([request(at, keys=f"k{at % 500}") for at in range(number, number + 20)])
        if number % 1000 == 0:
            assert find(index, "k7")[:1] == ([(number // 500 * 500 + 7) * 100])
    done.set()
    thread.join()
    assert not failures
    index.close()
    again = index_at(tmp_path, entry_max=1000)
    again.load(clean=True)
    assert find(again, "k7") == [at * 100 for at in range(5507, 0, -500)]


class FailingWrites(golden.NoFlush):
    def __init__(self, allowed):
        self.allowed = allowed

    def write(self, descriptor, data, at):
        self.allowed -= 1
        if self.allowed == -1:
            raise OSError(28, "No space left on device")
        super().write(descriptor, data, at)


@pytest.mark.parametrize("allowed", range(12))
def test_a_failed_write_loses_and_doubles_nothing(allowed, tmp_path):
    index = index_at(tmp_path, entry_max=6, ops=FailingWrites(allowed))
    requests = [request(number, keys="a b") for number in range(4)]
    index.dispatch(requests)
    with pytest.raises(OSError, match="No space"):
        for _ in range(10):
            index.close()
            index._files[-1]._dirty_blocks[:] = True
    index.close()
    assert find(index, "a") == [300, 200, 100, 0]
    assert [find(index, f"ID{number:030d}") for number in range(4)] == [[0], [100], [200], [300]]
    again = index_at(tmp_path, entry_max=6)
    again.load(clean=True)
    assert find(again, "b") == [300, 200, 100, 0]


class PlainIndex:
    """The model: what every record's keys are."""

    def __init__(self):
        self.entries = []

    def dispatch(self, requests):
        for entry in requests:
            if entry.sys_flag & 0xC == 0xC:
                continue
            words = [entry.uniq_key, *entry.keys.split(" ")]
            self.entries += [(hash_key(entry.topic, word), entry.physical_offset) for word in words if word]

    def find(self, topic, key):
        wanted = hash_key(topic, key)
        return [offset for key_hash, offset in reversed(self.entries) if key_hash == wanted]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_random_histories_with_crashes_agree_with_the_model(tmp_path_factory, seed):
    rng, path, model = random.Random(seed), tmp_path_factory.mktemp("store"), PlainIndex()
    options = {"slot_count": 7, "entry_max": 13}
    index, log = index_at(path, **options), []
    for _ in range(rng.randrange(1, 12)):
        action = rng.choice(["dispatch", "dispatch", "drain", "flush", "crash", "restart"])
        if action == "dispatch":
            new = [
                request(
                    len(log) + number,
                    topic=rng.choice("AB"),
                    keys=" ".join(rng.choices(["x", "y", "zz", "", "ü"], k=rng.randrange(3))),
                    sys_flag=rng.choice([0, 0, 8, 12]),
                )
                for number in range(rng.randrange(9))
            ]
            log += new
            index.dispatch(new)
            model.dispatch(new)
        elif action == "crash":
            index = index_at(path, **options)
            index.load(clean=False)
            index.dispatch(log)
        elif action == "restart":
            index.close()
            index = index_at(path, **options)
            index.load(clean=True)
            index.dispatch(log)
        else:
            getattr(index, action)()
    for topic in "AB":
        for key in ["x", "y", "zz", "ü", *(entry.uniq_key for entry in log)]:
            assert find(index, key, topic, 1000) == model.find(topic, key), (seed, topic, key)
