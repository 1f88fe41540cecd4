"""A replica directory: only whole records, only what is durable counts, and any failure can be taken up again."""

import shutil
import stat
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.store_at import SEGMENT, bodies, fill, open_store, settings_at
from tests.store.test_faults import Failing

from twinlog.base.file_modes import Modes
from twinlog.metadata.tables import open_tables
from twinlog.replication.errors import ReplicationError
from twinlog.replication.replica.join import LogRange
from twinlog.replication.replica.link import Append
from twinlog.spark.jobs.sync import log_copy
from twinlog.spark.jobs.sync.log_copy import CopyLimits, copy_log
from twinlog.spark.jobs.sync.replicas.metadata_changes import image_of
from twinlog.spark.jobs.sync.replicas.replica import Replica, ReplicaInUse, SparseFiles
from twinlog.spark.jobs.sync.replicas.replica_state import JournalEntry, SyncFolder
from twinlog.spark.jobs.sync.replicas.whole_records import WholeRecords
from twinlog.store.errors import DamagedTransfer, StoreError
from twinlog.wire.bodies import DataVersion, TopicConfig

COUNT = 250


@pytest.fixture(scope="module")
def master_log(tmp_path_factory):
    """The bytes of a master's log of three files."""
    with open_store(tmp_path_factory.mktemp("master")) as store:
        fill(store, COUNT)
        return b"".join(bytes(store.commit_log.chunk(at, SEGMENT)) for at in range(0, store.log_end, SEGMENT))


class Bytes:
    """A master that is nothing but its log."""

    name = "ha"

    def __init__(self, log, at, step=7_000, die_at=None):
        self._log, self._at, self._step, self._die_at = log, at, step, die_at
        self.reports = []

    def receive(self, seconds_max):
        if self._die_at is not None and self._at >= self._die_at:
            raise ConnectionError("the master has gone")
        data = memoryview(self._log)[self._at : self._at + self._step]
        append = Append(self._at, data)
        self._at += len(data)
        return (append,) if data else ()

    def report(self, log_end):
        self.reports.append(log_end)


def copy_into(root, log, *, ops=None, range_bytes=9_000, die_at=None, until=None, spoil=None):
    """One tick; returns the replica's durable end and what was reported to the master."""
    replica = Replica.open(root, **({"ops": ops} if ops else {}))
    source = None
    try:
        begin = replica.begin_copy(LogRange(0, len(log)), SEGMENT, range_bytes, 1)
        source = Bytes(spoil or log, begin, die_at=die_at)
        if begin < len(log):
            copy_log(replica, source, CopyLimits(until or len(log), 1e12, range_bytes))
        return replica.state.end, source.reports
    finally:
        replica.close()


@pytest.fixture(autouse=True)
def small_heaps(monkeypatch):
    monkeypatch.setattr(log_copy, "_TAKE_BYTES", 3_000)


def log_of(root, end):
    files = sorted((root / "commitlog").iterdir())
    return b"".join(one.read_bytes() for one in files)[:end]


def ranges_of(root):
    return SyncFolder(root).load().ranges


def assert_tiled(root, log):
    """The ranges join without gap or overlap, and their checksums are those of the log."""
    at = 0
    for number, one in enumerate(ranges_of(root), 1):
        assert (one.sequence, one.begin) == (number, at)
        assert one.crc32 == zlib.crc32(log[one.begin : one.end])
        at = one.end
    assert at == len(log)
    assert sum(one.records for one in ranges_of(root)) == COUNT


@settings(max_examples=30)
@given(steps=st.lists(st.sampled_from([1, 7, 100, 169, 5000, 40_000]), min_size=1, max_size=6), at=st.integers(0, 3))
def test_however_bytes_arrive_whole_records_come_out_in_order(master_log, steps, at):
    log, out, records, turn, fed = master_log, b"", WholeRecords(0, SEGMENT), at, 0
    count = 0
    while fed < len(log):
        length = max(steps[turn % len(steps)], len(log) // 200)
        records.feed(memoryview(log)[fed : fed + length])
        fed, turn = min(fed + length, len(log)), turn + 1
        if (whole := records.take()) is not None:
            assert whole.begin == len(out)
            out += bytes(whole.data)
            count += whole.records
    assert (out, count, records.pending) == (log, COUNT, 0)


def test_a_damaged_record_is_asked_for_again_and_passes_if_the_master_has_it_so(master_log):
    log = bytearray(master_log)
    log[200] ^= 1
    records = WholeRecords(0, SEGMENT)
    records.feed(memoryview(log))
    first = records.take()
    assert first is not None
    with pytest.raises(DamagedTransfer, match=f"record at {first.end} arrived damaged"):
        records.take()
    again = WholeRecords(first.end, SEGMENT, known_damage=first.end)
    again.feed(memoryview(log)[first.end :])
    whole = again.take()
    assert whole is not None and whole.end == len(log)
    assert whole.records + first.records == COUNT - 1
    assert again.damaged > 0


def test_a_replica_is_its_masters_log_byte_by_byte_and_a_broker_reads_it(tmp_path, master_log):
    root = tmp_path / "store"
    end, reports = copy_into(root, master_log)
    assert end == len(master_log) and log_of(root, end) == master_log
    assert reports == [one.end for one in ranges_of(root)] and len(reports) > 3
    assert_tiled(root, master_log)
    assert (root / "abort").exists(), "a broker must build its queues"
    with open_store(tmp_path) as store:
        assert store.log_end == end and store.report.damages == []
        assert len(bodies(store, queue_id=0)) + len(bodies(store, queue_id=1)) == COUNT
        fill(store, 1, start=COUNT)  # as a master


def test_a_second_tick_goes_on_where_the_first_ended(tmp_path, master_log):
    end, _ = copy_into(tmp_path, master_log, until=10_000)
    assert 10_000 <= end < len(master_log)
    again, reports = copy_into(tmp_path, master_log)
    assert again == len(master_log) and min(reports) > end
    assert_tiled(tmp_path, master_log)
    assert copy_into(tmp_path, master_log) == (len(master_log), [])


def test_nothing_is_reported_before_it_is_saved_in_the_state_nor_saved_before_it_is_durable(tmp_path, master_log):
    class Watch(Failing):
        flushed = 0

        def flush(self, descriptor):
            super().flush(descriptor)
            self.flushed += 1

    ops = Watch(10**9)
    folder = SyncFolder(tmp_path)

    class Checked(Bytes):
        def report(self, log_end):
            assert folder.load().end == log_end, "noted before it is reported"
            assert ops.flushed > len(self.reports), "durable before it is reported"
            super().report(log_end)

    replica = Replica.open(tmp_path, ops=ops)
    begin = replica.begin_copy(LogRange(0, len(master_log)), SEGMENT, 9_000, 1)
    source = Checked(master_log, begin)
    copy_log(replica, source, CopyLimits(len(master_log), 1e12, 9_000))
    replica.close()
    assert source.reports[-1] == len(master_log)


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25])
def test_a_full_disk_at_any_call_is_an_error_and_the_next_tick_repairs_all(tmp_path, master_log, nth):
    ops = Failing(nth)
    try:
        copy_into(tmp_path, master_log, ops=ops)
        failed = False
    except (StoreError, OSError) as error:
        failed = True
        assert "injected" in str(error)
    noted = SyncFolder(tmp_path).load().end
    assert log_of(tmp_path, noted) == master_log[:noted] if noted else True
    assert failed or not ops.failed or noted == len(master_log)
    copy_into(tmp_path, master_log)
    assert log_of(tmp_path, len(master_log)) == master_log
    assert_tiled(tmp_path, master_log)


@pytest.mark.parametrize("die_at", [100, 7_000, 14_000, 17_000, 30_000, 40_000])
def test_a_master_that_dies_leaves_a_replica_that_goes_on(tmp_path, master_log, die_at):
    with pytest.raises((OSError, ReplicationError)):
        copy_into(tmp_path, master_log, die_at=die_at)
    copy_into(tmp_path, master_log)
    assert log_of(tmp_path, len(master_log)) == master_log
    assert_tiled(tmp_path, master_log)


def test_bytes_damaged_on_their_way_are_never_kept(tmp_path, master_log):
    spoiled, place = bytearray(master_log), master_log.index(b"body 120")
    spoiled[place] ^= 1
    with pytest.raises(DamagedTransfer):
        copy_into(tmp_path, master_log, spoil=bytes(spoiled))
    assert SyncFolder(tmp_path).load().end <= place
    copy_into(tmp_path, master_log)
    assert log_of(tmp_path, len(master_log)) == master_log


def test_what_was_written_and_not_noted_is_copied_again(tmp_path, master_log):
    """As a kill between writing and noting leaves it."""
    copy_into(tmp_path, master_log, until=10_000)
    kept = shutil.copytree(tmp_path / "twinlog-sync", tmp_path / "kept")
    copy_into(tmp_path, master_log, until=18_000)
    shutil.rmtree(tmp_path / "twinlog-sync")
    kept.rename(tmp_path / "twinlog-sync")
    replica = Replica.open(tmp_path)
    assert replica.log_end > replica.state.end
    replica.close()
    copy_into(tmp_path, master_log, range_bytes=20_000)
    assert log_of(tmp_path, len(master_log)) == master_log
    assert_tiled(tmp_path, master_log)


def test_a_store_that_a_broker_wrote_is_walked_and_counts_as_it_is(tmp_path, master_log):
    shutil.copytree(make_store(tmp_path / "made"), tmp_path / "r")
    replica = Replica.open(tmp_path / "r")
    assert (replica.log_start, replica.state.end) == (0, 0) and replica.log_end > 10_000
    assert replica.begin_copy(LogRange(0, 10**6), SEGMENT, 1000, 1) == replica.log_end == replica.state.end
    (found,) = replica.state.ranges
    assert (found.begin, found.end, found.source, found.records) == (0, replica.log_end, "found", 100)
    assert found.crc32 == zlib.crc32(log_of(tmp_path / "r", replica.log_end))
    replica.close()


def make_store(path):
    with open_store(path) as store:
        fill(store, 100)
    return path / "store"


def test_a_log_that_was_taken_away_makes_another_replica(tmp_path, master_log):
    copy_into(tmp_path, master_log)
    before = SyncFolder(tmp_path).load().replica
    shutil.rmtree(tmp_path / "commitlog")
    copy_into(tmp_path, master_log)
    assert SyncFolder(tmp_path).load().replica != before
    assert_tiled(tmp_path, master_log)


def test_a_directory_in_use_by_a_broker_is_refused(tmp_path):
    with open_store(tmp_path), pytest.raises(ReplicaInUse, match="locked by a running broker"):
        Replica.open(tmp_path / "store")
    assert settings_at(tmp_path).root_dir == str(tmp_path / "store")


@pytest.mark.parametrize("modes", [Modes(), Modes(0o640, 0o750)], ids=str)
def test_a_replica_has_the_modes_it_was_given(tmp_path, master_log, modes):
    root = tmp_path / "r"
    copy_into(root, master_log, ops=SparseFiles(modes))
    found = {path.is_dir(): set() for path in (root, root / "lock")}
    for path in (root, *root.rglob("*")):
        found[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    assert found == {True: {modes.directory}, False: {modes.file}}


def test_links_in_the_place_of_a_replicas_files_are_refused(tmp_path, master_log):
    copy_into(tmp_path / "r", master_log, until=30_000)
    for number, path in enumerate(sorted(one for one in (tmp_path / "r").rglob("*") if one.is_file())):
        victim = tmp_path / f"victim-{number}"
        path.rename(victim)
        path.symlink_to(victim)
        before = victim.read_bytes()
        with pytest.raises(OSError, match=f"{path} is a symbolic link"):
            copy_into(tmp_path / "r", master_log)
        assert victim.read_bytes() == before
        path.unlink()
        victim.rename(path)


# -- metadata --------------------------------------------------------------------------------------


def adopt(root, topics, counter, *, held=None):
    replica = Replica.open(root)
    try:
        tables = replica.tables(1)
        before = image_of(tables)
        configs = {name: TopicConfig(topic_name=name, read_queue_nums=n) for name, n in topics.items()}
        tables.topics.adopt(configs, DataVersion(counter=counter))
        changes = replica.adopt(before, tables, held or {}, counter)
        if replica.is_state_unsaved:
            replica.save_state()
        return changes
    finally:
        replica.close()


def topics_of(root):
    tables = open_tables(root / "config", 1)
    tables.load()
    return {name: one.read_queue_nums for name, one in tables.topics.rows.items()}, tables.topics.version.counter


def entries_of(root):
    folder = SyncFolder(root)
    return [folder.entry(number) for number in folder.sequences()]


def test_a_difference_is_journalled_once_and_an_unchanged_table_writes_nothing(tmp_path):
    assert len(adopt(tmp_path, {"A": 1, "B": 2}, 1)) == 2
    stamp = (tmp_path / "config" / "topics.json").stat().st_mtime_ns
    assert adopt(tmp_path, {"A": 1, "B": 2}, 1) == []
    assert (tmp_path / "config" / "topics.json").stat().st_mtime_ns == stamp
    (change,) = adopt(tmp_path, {"A": 1, "B": 3}, 2)
    assert '"readQueueNums":2' in change.old and '"readQueueNums":3' in change.new
    (gone,) = adopt(tmp_path, {"B": 3}, 3)
    assert (gone.key, gone.new) == ("A", None)
    assert [len(one.changes) for one in entries_of(tmp_path)] == [2, 1, 1]
    assert topics_of(tmp_path) == ({"B": 3}, 3)


def test_differences_keep_their_order_though_the_clocks_of_workers_differ(tmp_path):
    day_ms = 86_400_000
    for topics, moment in (({"A": 1}, day_ms + 60_000), ({"A": 2}, day_ms), ({"A": 3}, 1)):
        adopt(tmp_path, topics, moment)
    far_ahead_before = [day_ms + 60_000, day_ms + 60_000, 1]
    assert [one.seen_ms for one in entries_of(tmp_path)] == far_ahead_before


@pytest.mark.parametrize("saved", [False, True])
def test_a_kill_between_journal_and_tables_is_made_good(tmp_path, saved):
    """The entry is there, the tables or the state are not: adopting again gives the tables and no second entry."""
    adopt(tmp_path, {"A": 1}, 1, held={"topics": "e:1"})
    state = (tmp_path / "twinlog-sync" / "state.json").read_bytes()
    config = shutil.copytree(tmp_path / "config", tmp_path / "kept")
    adopt(tmp_path, {"A": 2, "B": 1}, 2, held={"topics": "e:2"})
    (tmp_path / "twinlog-sync" / "state.json").write_bytes(state)
    if not saved:
        shutil.rmtree(tmp_path / "config")
        config.rename(tmp_path / "config")
    replica = Replica.open(tmp_path)
    assert replica.holds() == {}, "the next round asks for whole tables"
    replica.close()
    assert topics_of(tmp_path) == ({"A": 2, "B": 1}, 2)
    assert adopt(tmp_path, {"A": 2, "B": 1}, 2) == []
    assert [one.sequence for one in entries_of(tmp_path)] == [1, 2]


def test_entries_in_the_table_leave_the_journal_and_numbers_go_on(tmp_path):
    adopt(tmp_path, {"A": 1}, 1)
    adopt(tmp_path, {"A": 2}, 2)
    replica = Replica.open(tmp_path)
    assert [one.sequence for one in replica.entries(1)] == [2]
    assert replica.entries(2) == []
    replica.close()
    adopt(tmp_path, {"A": 3}, 3)
    (entry,) = entries_of(tmp_path)
    assert isinstance(entry, JournalEntry) and entry.sequence == 3


def test_revisions_count_only_while_no_other_program_writes_the_files(tmp_path):
    adopt(tmp_path, {"A": 1}, 1, held={"topics": "e:1"})
    replica = Replica.open(tmp_path)
    assert replica.holds() == {"topics": "e:1"}
    (tmp_path / "config" / "topics.json").write_text("{}")
    assert replica.holds() == {}
    replica.close()
