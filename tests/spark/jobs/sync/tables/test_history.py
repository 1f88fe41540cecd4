"""The tables of a synchronisation: each row once, whatever is killed between a replica and its row."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.spark.jobs.sync.test_ticks import SETTINGS, Master

from twinlog.base.atomic_directory import CannotExchange, exchange_directories
from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client.sync import Producer
from twinlog.net.errors import NetError
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.progress import quiet
from twinlog.spark.jobs.sync.job import sync
from twinlog.spark.jobs.sync.replicas.replica_state import Change, JournalEntry, RangeDigest
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.sync_run import SyncRun
from twinlog.spark.jobs.sync.tables import history, table_join
from twinlog.spark.jobs.sync.tables.history import AlreadyRunning, CannotWriteHistory, HistoryTables, only_writer
from twinlog.spark.jobs.sync.tick_work import BrokerReport
from twinlog.wire.bodies import DataVersion


class Tasks:
    """As much of a Spark session as a tick needs, without Spark."""

    def range(self, begin, end, step, partitions):
        self._numbers = range(begin, end, step)
        return self

    def mapInArrow(self, function, schema):
        batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers]
        self._rows = [row for batch in batches for out in function(iter([batch])) for row in out.to_pylist()]
        return self

    def collect(self):
        return [SimpleNamespace(**row) for row in self._rows]

    @property
    def sparkSession(self):
        return self


def entry(sequence, *keys):
    changes = [Change("topics", key, None, json.dumps({"v": sequence}), DataVersion(counter=sequence)) for key in keys]
    return JournalEntry(sequence, 1_700_000_000_000 + sequence, changes)


def digest(sequence, begin, end):
    return RangeDigest(sequence, begin, end, 7, 1, "ha", 3, 1_700_000_000_000)


def report(*entries, ranges=(), replica="r1"):
    return BrokerReport("a", replica=replica, entries=list(entries), ranges=list(ranges))


def rows(path, table="changes"):
    files = sorted(str(one) for one in (path / table).glob("[!._]*.parquet"))
    return ds.dataset(files).to_table().to_pylist() if files else []


def numbers(path, table="changes"):
    return sorted((row["replica"], row["sequence"]) for row in rows(path, table))


def test_a_row_that_is_reported_again_is_added_once_also_by_another_run(tmp_path):
    tables = HistoryTables(tmp_path)
    tables.add([report(entry(1, "A", "B"), ranges=[digest(1, 0, 10)])])
    tables.add([report(entry(1, "A", "B"), entry(2, "A"), ranges=[digest(1, 0, 10), digest(2, 10, 30)])])
    assert numbers(tmp_path) == [("r1", 1), ("r1", 1), ("r1", 2)]
    again = HistoryTables(tmp_path)
    assert again.drained == tables.drained
    again.add([report(entry(2, "A"), ranges=[digest(2, 10, 30)])])
    assert numbers(tmp_path, "ranges") == [("r1", 1), ("r1", 2)]
    (first, *_) = rows(tmp_path)
    assert (first["broker"], first["kind"], first["key"], first["oldValue"]) == ("a", "topics", "A", None)
    assert first["version"]["counter"] == 1 and first["seenAt"].year == 2023


def test_a_replica_that_was_begun_anew_has_numbers_of_its_own(tmp_path):
    tables = HistoryTables(tmp_path)
    tables.add([report(entry(1, "A"), entry(2, "A"))])
    tables.add([report(entry(1, "A"), replica="r2")])
    assert numbers(tmp_path) == [("r1", 1), ("r1", 2), ("r2", 1)]


def test_nothing_new_adds_no_file_and_a_partial_file_is_not_part_of_a_table(tmp_path):
    tables = HistoryTables(tmp_path)
    tables.add([report()])
    assert not (tmp_path / "changes").exists()
    tables.add([report(entry(1, "A"))])
    (tmp_path / "changes" / ".half").write_bytes(b"PAR1")
    assert HistoryTables(tmp_path).drained[("a", "r1")].entries == 1


def few_files(monkeypatch, files_max=3):
    plan = table_join.plan_join
    monkeypatch.setattr(table_join, "plan_join", lambda files, **more: plan(files, **more, files_max=files_max))


@pytest.mark.parametrize("killed", ["", "before the exchange", "behind the exchange"])
def test_many_files_become_one_and_readers_see_every_row_whenever_that_is_killed(tmp_path, monkeypatch, killed):
    tables = HistoryTables(tmp_path)
    for number in range(1, 6):
        tables.add([report(entry(number, "A"))])
    expected = numbers(tmp_path)
    few_files(monkeypatch)
    if killed:

        def dies(one, other):
            assert numbers(tmp_path) == expected
            if killed == "behind the exchange":
                exchange_directories(one, other)
            raise KeyboardInterrupt

        with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
            dying.setattr(table_join, "exchange_directories", dies)
            HistoryTables(tmp_path)
        assert numbers(tmp_path) == expected, "also while nobody goes on"
    HistoryTables(tmp_path)
    assert numbers(tmp_path) == expected
    assert len(list((tmp_path / "changes").iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["changes"]


def test_a_file_system_that_cannot_exchange_directories_keeps_its_files(tmp_path, monkeypatch, caplog):
    tables = HistoryTables(tmp_path)
    for number in range(1, 6):
        tables.add([report(entry(number, "A"))])
    expected = numbers(tmp_path)

    def cannot(one, other):
        raise CannotExchange(one, "not supported")

    few_files(monkeypatch)
    monkeypatch.setattr(table_join, "exchange_directories", cannot)
    HistoryTables(tmp_path)
    assert numbers(tmp_path) == expected and "are not joined" in caplog.text
    assert len(list((tmp_path / "changes").iterdir())) == 5


def test_a_table_that_takes_no_more_is_named_and_keeps_nothing_half_written(tmp_path, monkeypatch):
    tables = HistoryTables(tmp_path)
    tables.add([report(entry(1, "A"))])

    def full(table, out, **_):
        out.write(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(history.pq, "write_table", full)
        with pytest.raises(
            CannotWriteHistory, match=rf"{tmp_path}/changes cannot be written .No space left.*free space"
        ):
            tables.add([report(entry(2, "A"))])
    assert len(list((tmp_path / "changes").iterdir())) == 1
    tables.add([report(entry(2, "A"))])
    assert [number for _, number in numbers(tmp_path)] == [1, 2]


# -- with a broker ---------------------------------------------------------------------------------


@pytest.fixture
def master(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "master", SETTINGS) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        yield Master(tmp_path, broker, producer)


def run_for(master):
    run = SyncRun(SyncJob(to=str(master.to), addresses=(master.target.address,)), 1, quiet)
    run.discover()
    return run


def topics_told(master) -> list[tuple[str, bool]]:
    found = [row for row in rows(master.to / "_history") if row["kind"] == "topics" and row["key"].startswith("T-")]
    return [(row["key"], row["newValue"] is not None) for row in sorted(found, key=lambda row: row["sequence"])]


def assert_ranges_join(path: Path, end: int) -> None:
    at = 0
    for row in sorted(rows(path, "ranges"), key=lambda row: row["sequence"]):
        assert row["fromOffset"] == at
        at = row["toOffset"]
    assert at == end


@pytest.mark.parametrize("dies", ["before the tables", "between them", "behind the tables"])
def test_a_driver_that_dies_around_its_tables_neither_loses_nor_repeats_a_row(master, monkeypatch, dies):
    run_for(master).tick(Tasks(), 0)
    master.send(1, topic="T-one")
    run = run_for(master)
    original, calls = history.AppendedTable.append, []

    def append(table, found):
        calls.append(table)
        if dies == "before the tables" or (dies == "between them" and len(calls) == 2):
            raise OSError("killed")
        original(table, found)
        if dies == "behind the tables" and len(calls) == 2:
            raise OSError("killed")

    monkeypatch.setattr(history.AppendedTable, "append", append)
    with pytest.raises(OSError, match="killed"):
        run.tick(Tasks(), 1)
    monkeypatch.setattr(history.AppendedTable, "append", original)
    master.send(1, topic="T-two")
    after = run_for(master)
    after.tick(Tasks(), 1)  # Spark repeats the batch
    after.tick(Tasks(), 2)
    assert topics_told(master) == [("T-one", True), ("T-two", True)]
    (status,) = after.summary().brokers
    assert_ranges_join(master.to / "_history", status.log_end)
    with master.admin() as admin:
        admin.delete_topic("T-one")
    after.tick(Tasks(), 3)
    after.tick(Tasks(), 4)
    assert topics_told(master) == [("T-one", True), ("T-two", True), ("T-one", False)]
    assert not list((master.replica / "twinlog-sync").glob("0*.json")), "what is in the table leaves the journal"


def test_a_master_that_is_gone_is_an_error_that_is_counted(master):
    run = run_for(master)
    run.tick(Tasks(), 0)
    master.broker.stop()
    run.tick(Tasks(), 1)
    (status,) = run.summary().failed
    assert "cannot connect" in status.error and status.failures == 1 and status.lag_bytes == 0


def test_an_address_without_an_answer_is_an_error_of_its_own_unless_it_is_the_only_one(master):
    job = SyncJob(to=str(master.to), addresses=("127.0.0.1:1", master.target.address))
    run = SyncRun(job, 1, quiet)
    run.discover()
    for number in range(2):
        run.tick(Tasks(), number)
    (failed,) = run.summary().failed
    assert failed.broker == "127.0.0.1:1" and failed.failures == 2 and "cannot connect" in failed.error
    assert [one.broker for one in run.summary().brokers] == ["127.0.0.1:1", "broker-a"]
    with pytest.raises(NetError, match="cannot connect"):
        SyncRun(SyncJob(to=str(master.to), addresses=("127.0.0.1:1",)), 1, quiet).discover()


def test_two_masters_of_one_name_are_named_instead_of_sharing_a_folder(master, tmp_path):
    with EmbeddedBroker(tmp_path / "other", SETTINGS) as other:
        addresses = (master.target.address, other.broker_address)
        with pytest.raises(BadOption, match=f"{addresses[0]} and {addresses[1]} are both called 'broker-a'"):
            SyncRun(SyncJob(to=str(master.to), addresses=addresses), 1, quiet).discover()


def test_a_name_that_is_taken_by_a_master_that_comes_later_is_an_error_of_its_address(master, tmp_path, monkeypatch):
    late = "127.0.0.1:1"
    run = SyncRun(SyncJob(to=str(master.to), addresses=(late, master.target.address)), 1, quiet)
    run.discover()
    run.tick(Tasks(), 0)

    def taken(self, address, others):
        raise BadOption(f"{address} is called like another")

    monkeypatch.setattr(SyncRun, "_ask_name", taken)
    run.tick(Tasks(), 1)
    assert [(one.broker, one.error) for one in run.summary().failed] == [(late, f"{late} is called like another")]


def test_a_store_for_a_broker_that_is_not_copied_is_a_mistake(master):
    job = SyncJob(to=str(master.to), addresses=(master.target.address,), stores={"broker-x": "/data/x"})
    with pytest.raises(BadOption, match="--store names 'broker-x', which is not copied; copied are broker-a"):
        SyncRun(job, 1, quiet).discover()


def test_a_second_synchronisation_of_the_same_replicas_or_tables_is_refused(tmp_path):
    job = SyncJob(to=str(tmp_path / "to"), addresses=("127.0.0.1:1",), history=str(tmp_path / "history"), cores=1)
    for busy in (job.to, job.history):
        with only_writer(Path(busy)), pytest.raises(AlreadyRunning, match=f"{busy} is in use by another"):
            sync(None, job)
    with pytest.raises(NetError, match="cannot connect"):  # nobody holds them any more
        sync(None, job)
