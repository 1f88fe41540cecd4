"""An archive on a lake without Spark: each message once, whatever dies, refuses or lies."""

import itertools
import random
from dataclasses import replace

import pytest
from tests.spark.lake.archives import OLD, DyingLake, Killed, Numbers, PausedLake, compact, live, plain, run, writer

from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.lakes import chain as chains
from twinlog.spark.jobs.archive.lakes import runs
from twinlog.spark.jobs.archive.lakes.chain import Busy, Chain, TakenOver, load_state
from twinlog.spark.jobs.archive.lakes.job import every_seconds, fill, open_header
from twinlog.spark.jobs.archive.lakes.live_files import live_files
from twinlog.spark.jobs.archive.lakes.records import (
    ARCHIVING,
    ArchiveState,
    Record,
    decode_record,
    decode_state,
    encode_record,
    encode_state,
    record_name,
)
from twinlog.spark.jobs.archive.layout import ArchiveHeader, BadArchive, chosen
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import LakeError
from twinlog.spark.lake.local_lake import LocalLake


@pytest.fixture(autouse=True)
def dead_at_once(monkeypatch):
    """All runs of a test are in one process, which lives: a run that was killed is taken for dead without waiting."""
    monkeypatch.setattr(runs, "_SILENT_S", 0.0)


@pytest.fixture
def new_lake(tmp_path):
    counter = itertools.count()
    return lambda: LocalLake(parse_address(tmp_path / f"lake{next(counter)}", "test"))


def left_overs(lake) -> list[str]:
    return [entry.name for entry in lake.list("_") if entry.name.startswith(("_staging", "_runs", "_aside"))]


def steps_of(lake, work) -> int:
    """How many changes a run makes that is not killed."""
    counted = DyingLake(lake, 1 << 30)
    work(counted)
    return (1 << 30) - counted.left


def test_a_run_adds_what_is_new_and_the_next_one_continues(new_lake):
    lake = new_lake()
    done = run(lake, 35)
    assert (done.batches, done.topics["Orders"].rows, done.topics["Orders"].files) == (4, 35, 8)
    assert live(lake) == plain(lake) == list(range(35))
    assert run(lake, 35).batches == 0
    assert run(lake, 50, per_batch=7).topics["Orders"].rows == 15
    assert live(lake) == plain(lake) == list(range(50))
    assert left_overs(lake) == []


def test_each_message_is_there_once_wherever_an_archive_run_is_killed(new_lake):
    sample = new_lake()
    run(sample, 10)
    total = steps_of(sample, lambda lake: run(lake, 30))
    assert total > 10
    for steps in range(total):
        lake = new_lake()
        run(lake, 10)
        with pytest.raises(Killed):
            run(DyingLake(lake, steps), 30)
        seen = live(lake)
        assert seen == list(range(len(seen))), f"killed after {steps} changes"
        assert len(seen) % 10 == 0, "whole batches only"
        assert len(plain(lake)) == len(set(plain(lake))), f"killed after {steps} changes"
        run(lake, 30)
        assert live(lake) == plain(lake) == list(range(30)), f"killed after {steps} changes"
        assert left_overs(lake) == []


def test_compaction_killed_anywhere_shows_our_reader_old_or_new(new_lake):
    sample = new_lake()
    run(sample, 40)
    total = steps_of(sample, compact)
    assert total > 8
    for steps in range(total):
        lake = new_lake()
        run(lake, 40)
        with pytest.raises(Killed):
            compact(DyingLake(lake, steps))
        assert live(lake) == list(range(40)), f"killed after {steps} changes"
        assert set(plain(lake)) == set(range(40)), "a plain reader may see both sides, and lacks nothing"
        compact(lake)
        assert live(lake) == plain(lake) == list(range(40)), f"killed after {steps} changes"
        assert left_overs(lake) == []
        assert len(live_files(lake)[1][OLD]) == 1


def test_an_archive_run_finishes_what_a_killed_compaction_recorded(new_lake):
    lake = new_lake()
    run(lake, 40)
    for steps in itertools.count():
        try:
            compact(DyingLake(lake, steps))
        except Killed:
            if len(plain(lake)) > 40:
                break
    run(lake, 50)
    assert live(lake) == plain(lake) == list(range(50))


def test_a_batch_that_arrives_while_a_partition_is_rewritten_stays(new_lake):
    from tests.spark.lake.archives import COMPACT, rewrite

    from twinlog.spark.jobs.archive.lakes.compact import compact_lake

    lake = new_lake()
    run(lake, 40)

    def slowly(files, folder, count):
        made = rewrite(lake)(files, folder, count)
        run(lake, 60)
        return made

    done = compact_lake(lake, COMPACT, slowly)
    assert (done.files_before, done.files_after) == (8, 1)
    assert live(lake) == plain(lake) == list(range(60))


def test_a_rewrite_that_loses_rows_changes_nothing(new_lake):
    from tests.spark.lake.archives import COMPACT, rewrite

    from twinlog.spark.jobs.archive.lakes.compact import compact_lake

    lake = new_lake()
    run(lake, 40)
    with pytest.raises(BadArchive, match="has 41 rows, 40 after rewriting: it stays as it was"):
        compact_lake(lake, COMPACT, lambda *given: (41, rewrite(lake)(*given)[1]))
    assert live(lake) == plain(lake) == list(range(40))


# -- two writers ---------------------------------------------------------------------------------------


def test_a_run_that_was_thought_dead_adds_nothing_once_another_has_begun(new_lake):
    lake = new_lake()

    def write(parts, folder):  # the first batch of the first run takes so long that another run does the work
        run(lake, 30)
        return writer(lake)(parts, folder)

    job = ArchiveJob(target="s3a://b/a", name_server="none:1", topics=("Orders",))
    with pytest.raises(TakenOver, match=r"another run \(.*process \d+\) took over"):
        fill(lake, job, Numbers(30), write)
    assert live(lake) == plain(lake) == list(range(30))
    run(lake, 40)
    assert live(lake) == plain(lake) == list(range(40))
    assert left_overs(lake) == []


def test_a_first_run_that_sleeps_before_it_begins_does_not_start_again(new_lake):
    lake = new_lake()
    with pytest.raises(Busy, match="at the same moment"):
        run(PausedLake(lake, "put_if_absent", "_commits/", lambda: run(lake, 30)), 30)
    run(lake, 40)
    assert live(lake) == plain(lake) == list(range(40))


def test_a_run_keeps_what_one_that_began_after_it_has_staged(new_lake):
    for first, second in ((run, compact), (compact, run)):
        lake = new_lake()
        run(lake, 30)
        works = {run: lambda lake: run(lake, 60), compact: compact}
        late = DyingLake(lake, 1)  # it begins, and is stopped when it wants to record the files that it has staged

        def begins(late=late, work=works[second]):
            with pytest.raises(Killed):
                work(late)

        def staged(lake=lake):
            return [entry.name for entry in lake.list("_staging/")]

        works[first](PausedLake(lake, "list", "_staging/", begins))
        assert staged(), "a run that is alive still needs them"
        works[second](lake)
        assert live(lake) == plain(lake) == list(range(60))
        assert staged() == []


def test_a_second_run_beside_a_living_one_is_refused(new_lake, monkeypatch):
    lake = new_lake()
    monkeypatch.setattr(runs, "_SILENT_S", 60.0)
    monkeypatch.setattr(runs, "_POLL_S", 0.01)
    monkeypatch.setattr(runs, "BEAT_S", 0.02)
    told = []

    def write(parts, folder):
        with pytest.raises(Busy) as caught:
            run(lake, 30)
        told.append(str(caught.value))
        return writer(lake)(parts, folder)

    fill(lake, ArchiveJob(target="s3a://b/a", name_server="none:1", topics=("Orders",)), Numbers(10), write)
    assert f"another run is archiving {lake.root} (" in told[0]
    assert "wait for its end, or stop it, or give another directory" in told[0]
    assert live(lake) == list(range(10))


def test_a_run_of_a_process_that_no_longer_exists_needs_no_waiting(new_lake, monkeypatch):
    lake = new_lake()
    with pytest.raises(Killed):
        run(DyingLake(lake, 6), 30)
    monkeypatch.setattr(runs, "_SILENT_S", 3600.0)
    monkeypatch.setattr(runs, "_started", lambda process: None)
    run(lake, 30)
    assert live(lake) == list(range(30))


# -- bad input -----------------------------------------------------------------------------------------


class LyingLake:
    """Lists only part of what is there."""

    in_tasks = True

    def __init__(self, lake, keep) -> None:
        self.inner = lake
        self._keep = keep

    def list(self, prefix="", count_max=None):
        return [entry for entry in self.inner.list(prefix, count_max) if self._keep(entry.name)]

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_half_a_listing_of_the_table_is_an_error_that_names_the_partition(new_lake):
    lake = new_lake()
    run(lake, 40)
    lying = LyingLake(lake, lambda name: "b000000000002" not in name)
    with pytest.raises(LakeError, match=rf"{OLD} has 6 files .* count 8 .*half a listing"):
        live_files(lying, sleep=lambda _: None)
    with pytest.raises(LakeError, match="half a listing"):
        compact_without_pause(lying)
    assert live(lake) == plain(lake) == list(range(40))


def compact_without_pause(lake):
    from twinlog.spark.jobs.archive.lakes import live_files as module

    module._PAUSE_S, before = 0.0, module._PAUSE_S
    try:
        compact(lake)
    finally:
        module._PAUSE_S = before


def test_half_a_listing_of_the_records_changes_nothing(new_lake):
    lake = new_lake()
    run(lake, 40)
    lying = LyingLake(lake, lambda name: name < record_name(2) or not name.startswith("_commits/"))
    assert load_state(lying) == load_state(lake)
    run(lying, 50)
    assert live(lake) == plain(lake) == list(range(50))


def test_an_empty_listing_of_the_records_is_not_a_new_archive(new_lake, monkeypatch):
    monkeypatch.setattr(chains, "_STATE_EVERY", 4)
    monkeypatch.setattr(chains, "_KEPT", 6)
    lake = new_lake()
    run(lake, 100, per_batch=3)
    assert lake.read(record_name(0)) is None, "the first records are removed"
    lying = LyingLake(lake, lambda name: not name.startswith("_commits/"))
    assert load_state(lying) == load_state(lake)
    run(lying, 120)
    assert live(lake) == live(lying) == plain(lake) == list(range(120))


def test_an_archive_without_its_records_is_refused_and_stays_as_it_is(new_lake, monkeypatch):
    monkeypatch.setattr(chains, "_STATE_EVERY", 4)
    for end, told in ((10, "its records in _commits/ are gone"), (100, "is missing, and it is the newest state")):
        lake = new_lake()
        run(lake, end)
        lake.delete([entry.name for entry in lake.list("_commits/")])
        for _ in range(2):
            with pytest.raises((BadArchive, LakeError), match=told):
                run(lake, end)
        assert plain(lake) == list(range(end))
    lake.write(chains.NEWEST, b"{}")
    with pytest.raises(BadArchive, match=r"_newest_state\.json cannot be used"):
        run(lake, 100)


def test_each_message_is_there_once_wherever_a_run_that_removes_records_is_killed(new_lake, monkeypatch):
    monkeypatch.setattr(chains, "_STATE_EVERY", 2)
    monkeypatch.setattr(chains, "_KEPT", 1)
    sample = new_lake()
    run(sample, 10)
    for steps in range(steps_of(sample, lambda lake: run(lake, 30))):
        lake = new_lake()
        run(lake, 10)
        with pytest.raises(Killed):
            run(DyingLake(lake, steps), 30)
        lying = LyingLake(lake, lambda name: not name.startswith("_commits/"))
        assert load_state(lying) == load_state(lake), f"killed after {steps} changes"
        run(lying, 30)
        assert live(lake) == plain(lake) == list(range(30)), f"killed after {steps} changes"


def test_a_record_that_is_gone_or_damaged_is_named(new_lake):
    lake = new_lake()
    run(lake, 40)
    lake.delete([record_name(2)])
    with pytest.raises(LakeError, match=r"_commits/000000000002.json: is missing, and _commits/0+5.json is there"):
        run(lake, 50)
    lake.write(record_name(2), b'{"number": 2')
    with pytest.raises(BadArchive, match=r"000000000002.json cannot be used"):
        run(lake, 50)


def test_a_partition_that_was_removed_by_hand_is_forgotten_by_compaction(new_lake):
    lake = new_lake()
    run(lake, 40)
    lake.delete([entry.name for entry in lake.list(f"{OLD}/")])
    assert live(lake) == []
    compact(lake)
    assert OLD not in load_state(lake).partitions
    run(lake, 60)
    assert live(lake) == list(range(40, 60))


def test_an_archive_of_another_schema_or_a_strange_directory_is_refused(new_lake):
    lake = new_lake()
    run(lake, 10)
    with pytest.raises(BadArchive, match="it also has commitLogOffset"):
        open_header(lake, ArchiveHeader("parquet", "brokers", chosen(("body",))))
    strange = new_lake()
    strange.write("photos/cat.jpg", b"")
    with pytest.raises(BadArchive, match=r"is not an archive, it holds photos/cat\.jpg"):
        run(strange, 10)


# -- records -------------------------------------------------------------------------------------------


def test_many_records_add_up_to_a_saved_state_and_old_ones_are_removed(new_lake, monkeypatch):
    monkeypatch.setattr(chains, "_STATE_EVERY", 4)
    monkeypatch.setattr(chains, "_KEPT", 6)
    lake = new_lake()
    run(lake, 100, per_batch=3)
    assert live(lake) == plain(lake) == list(range(100))
    names = [entry.name for entry in lake.list("_commits/")]
    assert len(names) < 16
    assert record_name(0) not in names
    assert load_state(lake).position == {"Orders@a@0": 100}


def test_a_run_that_is_too_far_behind_stops(new_lake, monkeypatch):
    lake = new_lake()
    run(lake, 10)
    late = Chain(lake, ARCHIVING, "late")
    late.begin(None)
    monkeypatch.setattr(chains, "_STATE_EVERY", 2)
    monkeypatch.setattr(chains, "_KEPT", 0)
    for end in (20, 30):
        run(lake, end)
    with pytest.raises((BadArchive, TakenOver)):
        late.add("end")
    assert live(lake) == list(range(30))


def test_records_and_states_survive_being_written_and_read(new_lake):
    lake = new_lake()
    run(lake, 30)
    state = load_state(lake)
    assert decode_state(encode_state(state), "here") == state
    record = Record(number=3, kind="batch", role=ARCHIVING, run="r", position={"q": 1}, finishes=(1, 2), batch=9)
    assert decode_record(encode_record(record), "here") == record
    assert replace(record, number=4) != record
    assert ArchiveState().owner(ARCHIVING) is None


def test_times_between_batches_are_those_of_spark():
    assert [every_seconds(text) for text in ("500 milliseconds", "10 seconds", "2 minutes", "1 hour")] == [
        *(0.5, 10.0, 120.0, 3600.0)
    ]
    with pytest.raises(BadArchive, match="write for example 10 seconds"):
        every_seconds("soon")


def test_each_message_is_in_the_bucket_once_after_kills_at_random_moments(s3):
    from tests.faults.rows.archives import kill_filling

    seed = random.randrange(1 << 30)
    kill_filling(s3, seed, rounds=3, each_s=0.5)
