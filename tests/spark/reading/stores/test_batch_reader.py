"""Stores as tables, without a JVM: every record once, however the log is cut, and no damage unnoticed."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from tests.store import golden
from tests.store.store_at import NOW, SEGMENT, draft, fill, kill, open_store, write_log

from twinlog.spark.errors import BadOption, BadRecord, DataLoss
from twinlog.spark.reading.stores.batch_reader import StoreBatchReader, TableReader
from twinlog.spark.reading.stores.log_ranges import list_segments
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.reading.stores.stream_reader import StoreStreamReader, cap_bytes
from twinlog.spark.schema import STORE_MESSAGE_COLUMNS, TABLE_COLUMNS
from twinlog.store.errors import NotAStore


def reader(path, **more):
    given = {"path": str(path), **{name: str(value) for name, value in more.items()}}
    return StoreBatchReader(store_options(given), STORE_MESSAGE_COLUMNS)


def rows(one):
    return [row for part in one.partitions() for batch in one.read(part) for row in batch.to_pylist()]


def offsets(one):
    return [row["commitLogOffset"] for row in rows(one)]


def table(path, kind, **more):
    given = {"path": str(path), "kind": kind, **{name: str(value) for name, value in more.items()}}
    return rows(TableReader(store_options(given), TABLE_COLUMNS[kind]))


@pytest.fixture
def stored(tmp_path):
    """A store of three segments and the places of its records."""
    with open_store(tmp_path) as store:
        places = fill(store, 250)
    return tmp_path / "store", [place.physical_offset for place in places]


@pytest.mark.parametrize("split", [1024, 1025, 3000, 7777, SEGMENT, 1 << 20])
def test_every_record_is_read_once_however_the_log_is_cut(stored, split):
    path, places = stored
    one = reader(path, splitBytes=split)
    assert offsets(one) == places
    assert len(one.partitions()) >= 3


def test_rows_know_their_segment_and_the_name_given_to_their_broker(stored):
    path, _ = stored
    found = rows(reader(path, brokerName="broker-a"))
    assert {row["brokerName"] for row in found} == {"broker-a"}
    assert {row["segment"] for row in found} == {f"{n * SEGMENT:020d}" for n in range(3)}
    assert found[7]["body"] == b"body 7"


def test_a_broker_without_a_name_has_that_of_its_directory(tmp_path):
    with open_store(tmp_path / "broker-b") as store:
        fill(store, 3)
    assert {row["brokerName"] for row in rows(reader(tmp_path / "broker-b" / "store"))} == {"broker-b"}


def test_many_stores_are_one_table(tmp_path):
    for name in ("broker-a", "broker-b"):
        with open_store(tmp_path / name) as store:
            fill(store, 5)
    found = rows(reader(tmp_path / "*" / "store"))
    assert [row["brokerName"] for row in found] == ["broker-a"] * 5 + ["broker-b"] * 5
    (tmp_path / "broker-a" / "_history").mkdir()  # as a synchronisation keeps it beside its replicas
    assert len(rows(reader(tmp_path / "broker-a" / "*"))) == 5
    paths = json.dumps([str(tmp_path / name / "store") for name in ("broker-a", "broker-b")])
    assert len(rows(StoreBatchReader(store_options({"paths": paths}), STORE_MESSAGE_COLUMNS))) == 10


@pytest.mark.parametrize("name", ["normal", "crash", "cqext"])
def test_java_stores_are_read_like_their_manifest(tmp_path, name):
    path = golden.unpack(name, tmp_path / name)
    records = [one for one in golden.manifest(name)["commitLog"]["records"] if "topic" in one]
    found = rows(reader(path, splitBytes=1 << 20, decompress="false"))  # one row for each record, as it is stored
    by_offset = {row["commitLogOffset"]: row for row in found}
    assert set(by_offset) >= {one["offset"] for one in records}
    for one in records:
        row = by_offset[one["offset"]]
        assert (row["topic"], row["queueId"], row["storeSize"]) == (one["topic"], one["queueId"], one["totalSize"])


def test_a_live_store_is_read_up_to_where_it_was_and_left_alone(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 100)
        path = tmp_path / "store"
        one = reader(path)
        parts = one.partitions()
        fill(store, 50, start=100)
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        assert sum(len(batch) for part in parts for batch in one.read(part)) == 100
        assert len(rows(reader(path))) == 150
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_store_is_not_changed_by_reading(stored):
    path, _ = stored
    before = {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.rglob("*") if one.is_file()}
    rows(reader(path))
    table(path, "consume_queue")
    assert {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.rglob("*") if one.is_file()} == before


def test_a_torn_last_record_is_the_end(tmp_path):
    store = open_store(tmp_path)
    places = fill(store, 20)
    kill(store)
    last = places[-1].physical_offset
    for cut in (1, 8, 60, 90, places[-1].size - 1):
        write_log(tmp_path, last + cut, bytes(places[-1].size - cut))
        found = offsets(reader(tmp_path / "store", splitBytes=1024))
        assert found == [place.physical_offset for place in places[:-1]]


@pytest.mark.parametrize("split", [1024, SEGMENT])
@pytest.mark.parametrize("field", [0, 4, 28, 88])  # size, magic, physical offset, body
@pytest.mark.parametrize("number", [3, 8, 9, 10])
def test_a_damaged_record_is_an_error_with_its_place_or_left_out(tmp_path, split, field, number):
    with open_store(tmp_path) as store:
        places = [place.physical_offset for place in fill(store, 120)]
    write_log(tmp_path, places[number] + field, b"\xff")
    path = tmp_path / "store"
    with pytest.raises(BadRecord, match=rf"segment 0{{20}} physical offset {places[number]} to \d+: no valid record"):
        offsets(reader(path, splitBytes=split))
    assert offsets(reader(path, splitBytes=split, failOnDataLoss="false")) == [
        place for place in places if place != places[number]
    ]


def test_records_left_behind_the_end_by_a_truncation_are_not_read(tmp_path):
    with open_store(tmp_path, settings={"property_crc_enabled": False}) as store:  # times can be changed then
        places = fill(store, 30)
    place, log = places[10].physical_offset, tmp_path / "store" / "commitlog" / f"{0:020d}"
    newer = bytearray(log.read_bytes()[: places[0].size])
    newer[28:36] = place.to_bytes(8, "big")
    newer[56:64] = (NOW + 5000).to_bytes(8, "big")
    write_log(tmp_path, place, bytes(newer) + bytes(8))
    found = offsets(reader(tmp_path / "store", splitBytes=1024))
    assert found == [one.physical_offset for one in places[:11]]


def test_crc_can_be_left_unchecked(tmp_path):
    with open_store(tmp_path) as store:
        place = fill(store, 10)[3].physical_offset
    write_log(tmp_path, place + 88, b"\xff")
    assert len(rows(reader(tmp_path / "store", checkCrc="false"))) == 10


def test_a_segment_that_goes_away_is_a_loss_unless_forgiven(stored):
    path, _ = stored
    one, forgiving = reader(path), reader(path, failOnDataLoss="false")
    parts = one.partitions()
    (path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DataLoss, match="is gone"):
        list(one.read(parts[0]))
    assert list(forgiving.read(parts[0])) == []


def test_a_missing_file_in_the_row_is_named(stored):
    path, _ = stored
    (path / "commitlog" / f"{SEGMENT:020d}").unlink()
    with pytest.raises(BadRecord, match=f"{2 * SEGMENT:020d} does not begin where"):
        reader(path).partitions()


def test_a_short_segment_is_named(stored):
    path, _ = stored
    (path / "commitlog" / f"{SEGMENT:020d}").write_bytes(b"short")
    with pytest.raises(BadRecord, match="has 5 bytes"):
        reader(path).partitions()


def test_a_last_segment_that_was_copied_in_part_is_named(stored):
    path, _ = stored
    last = path / "commitlog" / f"{2 * SEGMENT:020d}"
    last.write_bytes(last.read_bytes()[: SEGMENT // 2])
    with pytest.raises(BadRecord, match=f"{last.name} has {SEGMENT // 2} bytes, the first one {SEGMENT}"):
        reader(path).partitions()


def test_a_starting_time_keeps_the_segment_before_one_whose_first_record_is_damaged(stored):
    path, places = stored
    write_log(path.parent, SEGMENT + 4, b"\xff")
    one = reader(path, startingTimestamp=NOW, failOnDataLoss="false")
    assert offsets(one) == [place for place in places if place != SEGMENT]


@pytest.fixture
def hours(tmp_path):
    """A store of three segments, a message every two minutes, each fifth of topic B; their places and times."""
    now, places = [NOW], []
    with open_store(tmp_path / "broker-a", clock_ms=lambda: now[0]) as store:
        for number in range(250):
            now[0] += 120_000
            place = store.append(draft(number, topic="A" if number % 5 else "B", queue_id=number % 2))
            places.append((place.physical_offset, now[0]))
    return tmp_path / "broker-a" / "store", places


def test_options_choose_topics_and_queues(hours):
    path, places = hours
    of_b = [place for place, _ in places[::5]]
    assert offsets(reader(path, topic="B, C")) == offsets(reader(path, subscribe="B")) == of_b
    assert offsets(reader(path, assign='{"B":{"broker-a":[1,7]},"C":{"broker-a":[0]}}')) == of_b[1::2]
    twice = {"paths": json.dumps([str(path), str(path)]), "brokerName": "broker-a,broker-b"}
    one = StoreBatchReader(store_options({**twice, "assign": '{"B":{"broker-b":[0]}}'}), STORE_MESSAGE_COLUMNS)
    assert {part.value.broker_name for part in one.partitions()} == {"broker-b"}
    assert offsets(one) == of_b[::2]


@pytest.mark.parametrize("split", [1024, SEGMENT])
@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 40), (39, 200), (249, 250)])
def test_options_choose_a_range_of_the_log_to_the_byte(hours, first, last, split):
    path, places = hours
    ends = [place for place, _ in places] + [places[-1][0] + 1]
    for before in (0, 1):  # in the record before, the first that is wanted is the next one
        begin = max(ends[first] - before, 0)
        given = {"startingOffsets": {"broker-a": begin}, "endingOffsets": {"broker-a": ends[last]}}
        one = reader(path, splitBytes=split, **{name: json.dumps(value) for name, value in given.items()})
        assert offsets(one) == ends[first:last]
        assert sum(part.value.end - part.value.begin for part in one.partitions()) <= ends[last] - begin


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 40), (39, 200), (249, 250), (0, 0)])
def test_options_choose_a_range_of_time_to_the_millisecond(hours, first, last):
    path, places = hours
    times = [time for _, time in places] + [places[-1][1] + 1]
    given = {"startingTimestamp": times[first - 1] + 1 if first else 0, "endingTimestamp": times[last]}
    assert offsets(reader(path, **given)) == [place for place, _ in places[first:last]]


def test_segments_that_are_hours_away_from_the_wanted_time_are_not_opened(hours):
    path, places = hours
    late = reader(path, startingTimestamp=places[-1][1])
    assert [part.value.segment.base for part in late.partitions()] == [2 * SEGMENT]
    early = reader(path, endingTimestamp=places[0][1] + 1)
    assert [part.value.segment.base for part in early.partitions()] == [0]
    assert stream(path, startingTimestamp=places[-1][1]).initialOffset() == {str(path): 2 * SEGMENT}


def test_a_stream_has_the_rows_that_options_choose(hours):
    path, places = hours
    one = stream(path, topic="B", startingTimestamp=places[100][1])
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    found = [row for part in one.partitions(start, end) for batch in one.read(part) for row in batch.to_pylist()]
    assert [row["commitLogOffset"] for row in found] == [place for place, _ in places[100::5]]


def test_consume_queues_are_a_table(stored):
    path, places = stored
    found = table(path, "consume_queue")
    assert sorted(row["commitLogOffset"] for row in found) == places
    assert {(row["topic"], row["queueId"]) for row in found} == {("TopicA", 0), ("TopicA", 1)}
    assert [row["queueOffset"] for row in found if row["queueId"] == 1] == list(range(125))


def test_the_index_is_a_table(stored):
    path, places = stored
    found = table(path, "index", maxHashSlotNum=100, maxIndexNum=400)
    assert sorted({row["commitLogOffset"] for row in found}) == places
    assert len(found) == 500  # a unique key and a user's key each
    with pytest.raises(BadOption, match="give maxHashSlotNum and maxIndexNum"):
        table(path, "index")


def test_offsets_and_topics_of_a_java_store_are_tables(tmp_path):
    path = golden.unpack("normal", tmp_path / "broker-j")
    placed = {(r["topic"], r["consumerGroup"], r["queueId"]): r["offset"] for r in table(path, "consumer_offsets")}
    assert placed["TopicA", "GroupA", 0] == 2
    topics = {row["topic"]: row for row in table(path, "topic_configs")}
    assert topics["TopicBatchCQ"]["attributes"] == [("queue.type", "BatchCQ")]
    assert topics["TopicA"]["brokerName"] == "broker-j"


def test_an_empty_store_has_no_rows(tmp_path):
    with open_store(tmp_path) as store:
        assert store.log_end == 0
        (tmp_path / "store" / "commitlog").mkdir(exist_ok=True)
        (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(SEGMENT))
        one = reader(tmp_path / "store")
        assert one.partitions() == []
    assert list(one.read(InputPartition(None))) == []


def test_a_first_file_that_is_being_made_is_an_empty_store_and_several_empty_ones_are_a_broken_copy(tmp_path):
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").touch()
    assert reader(tmp_path).partitions() == []
    assert stream(tmp_path).initialOffset() == {str(tmp_path): 0}
    (log / f"{SEGMENT:020d}").touch()
    with pytest.raises(BadRecord, match=f"{0:020d} has 0 bytes"):
        reader(tmp_path).partitions()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kind": "message"}, "did you mean 'messages'"),
        ({"splitByte": "1m"}, "did you mean 'splitBytes'"),
        ({"splitBytes": "10"}, "number with a unit"),
        ({"path": "/nowhere/at/all"}, "no store directory"),
        ({"path": "hdfs://host/store"}, "mount it"),
        ({"path": ""}, "no store directory is given"),
        ({"brokerName": "a,b"}, "2 brokers for 1 stores"),
        ({"topic": " , "}, "give topics with commas"),
        ({"topic": "A", "assign": '{"A":{"b":[0]}}'}, "give one of topic, subscribe, assign"),
        ({"brokerName": "a", "assign": '{"A":{"b":[0]}}'}, "no store of broker 'b'; there are stores of a"),
        ({"startingOffsets": "latest"}, "give earliest, or physical offsets by broker"),
        ({"brokerName": "a", "startingOffsets": '{"b":0}'}, "no store of broker 'b'"),
        ({"brokerName": "a", "endingOffsets": '{"a":-1}'}, "broker a is set to -1"),
        ({"kind": "topic_configs", "topic": "A"}, "filter its rows with where"),
    ],
)
def test_bad_options_say_what_to_write_instead(tmp_path, more, message):
    with pytest.raises(BadOption, match=message):
        store_options({"path": str(tmp_path), **more})


def test_a_directory_without_segments_is_not_a_store(tmp_path):
    with pytest.raises(NotAStore):
        reader(tmp_path).partitions()


@pytest.mark.parametrize("kind", ["consumer_offsets", "topic_configs"])
def test_a_directory_without_config_has_no_metadata_to_read(tmp_path, kind):
    with pytest.raises(BadRecord, match=f"{tmp_path / 'config'} does not exist"):
        table(tmp_path, kind)


# -- streams -------------------------------------------------------------------------------------------


def stream(path: Path, **more) -> StoreStreamReader:
    given = {"path": str(path), **{name: str(value) for name, value in more.items()}}
    return StoreStreamReader(store_options(given, streaming=True), STORE_MESSAGE_COLUMNS)


def streamed(one, start, end):
    parts = one.partitions(start, end)
    return [row["commitLogOffset"] for part in parts for batch in one.read(part) for row in batch.to_pylist()]


def test_a_growing_store_is_a_stream(tmp_path):
    path = tmp_path / "store"
    with open_store(tmp_path) as store:
        first = [place.physical_offset for place in fill(store, 30)]
        one = stream(path)
        start = one.initialOffset()
        end = one.latestOffset(dict(start), ReadAllAvailable())
        assert end == {str(path): store.log_end}
        second = [place.physical_offset for place in fill(store, 130, start=30)]
        after = one.latestOffset(dict(end), ReadAllAvailable())
        assert streamed(one, start, end) == first
        assert streamed(one, end, after) == second
        assert one.latestOffset(dict(after), ReadAllAvailable()) == after


def test_a_limit_in_bytes_gives_every_record_once(tmp_path):
    with open_store(tmp_path) as store:
        places = [place.physical_offset for place in fill(store, 200)]
    one = stream(tmp_path / "store", maxBytesPerTrigger="3k", splitBytes=1024)
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxBytes(3072)
    one.prepareForTriggerAvailableNow()
    found, start = [], one.initialOffset()
    while (end := one.latestOffset(dict(start), limit)) != start:
        found += streamed(one, start, end)
        start = end
    assert found == places


def test_a_log_that_lost_its_beginning_is_a_loss_unless_forgiven(stored):
    path, places = stored
    start, end = {str(path): 0}, {str(path): places[-1] + 1}
    (path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DataLoss, match=f"begins at {SEGMENT}, the stream was at 0"):
        stream(path).partitions(start, end)
    assert streamed(stream(path, failOnDataLoss="false"), start, end) == [p for p in places if p >= SEGMENT]
    with pytest.raises(DataLoss, match="the stream was at 9"):
        stream(path).partitions({str(path): 9}, {str(path): 3})


@pytest.mark.parametrize("field", [0, 4, 28, 88])  # size, magic, physical offset, body
@pytest.mark.parametrize("limit", ["1", "1000000"])
def test_damage_where_a_batch_begins_is_an_error_with_its_place_or_left_out(tmp_path, field, limit):
    path = tmp_path / "store"
    with open_store(tmp_path) as store:
        first = [place.physical_offset for place in fill(store, 30)]
        one = stream(path, maxBytesPerTrigger=limit)
        start = one.latestOffset(one.initialOffset(), ReadMaxBytes(1 if limit == "1" else 1 << 20))
        second = [place.physical_offset for place in fill(store, 30, start=30)]
    at = start[str(path)]
    assert at in (*first, *second)
    write_log(tmp_path, at + field, b"\xff")
    end = one.latestOffset(dict(start), ReadAllAvailable())
    with pytest.raises(BadRecord, match=rf"physical offset {at} to \d+: no valid record"):
        streamed(one, start, end)
    left = [place for place in (*first, *second) if place > at]
    assert streamed(stream(path, failOnDataLoss="false"), start, end) == left


def test_a_log_that_was_cut_is_a_loss_and_not_an_idle_stream(stored):
    path, places = stored
    name = str(path)
    one, forgiving = stream(path), stream(path, failOnDataLoss="false")
    start, planned = {name: places[100]}, one.latestOffset({name: 0}, ReadAllAvailable())
    (path / "commitlog" / f"{2 * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    end = 2 * SEGMENT
    with pytest.raises(DataLoss, match=f"store {name}: the batch ends at {planned[name]}, the log now at {end}"):
        one.partitions(start, planned)
    assert streamed(forgiving, start, planned) == [place for place in places[100:] if place < end]
    with pytest.raises(DataLoss, match=f"the stream was at {planned[name]}, the log now ends at {end}"):
        one.latestOffset(dict(planned), ReadAllAvailable())
    assert forgiving.latestOffset(dict(planned), ReadAllAvailable()) == {name: end}
    assert streamed(forgiving, planned, {name: end}) == []


def test_a_store_that_is_new_is_read_from_its_beginning_and_one_that_is_gone_is_a_loss(tmp_path):
    for name in ("broker-a", "broker-b"):
        with open_store(tmp_path / name) as store:
            places = [place.physical_offset for place in fill(store, 250)]
    a, b = (str(tmp_path / name / "store") for name in ("broker-a", "broker-b"))
    (tmp_path / "broker-b" / "store" / "commitlog" / f"{0:020d}").unlink()
    both, only_a = stream(tmp_path / "*" / "store"), stream(tmp_path / "broker-a" / "store")
    start = only_a.latestOffset(only_a.initialOffset(), ReadAllAvailable())
    known = both.latestOffset(dict(start), ReadAllAvailable())
    assert known == {a: start[a], b: SEGMENT} and streamed(both, start, known) == []
    end = both.latestOffset(dict(known), ReadAllAvailable())
    assert streamed(both, known, end) == [place for place in places if place >= SEGMENT]
    with pytest.raises(DataLoss, match=f"store {b}: it is no longer among the stores"):
        only_a.latestOffset(dict(end), ReadAllAvailable())
    with pytest.raises(DataLoss, match=f"store {b}: it is no longer among the stores"):
        only_a.partitions(known, end)
    forgiving = stream(tmp_path / "broker-a" / "store", failOnDataLoss="false")
    assert forgiving.latestOffset(dict(end), ReadAllAvailable()) == end
    assert streamed(forgiving, known, end) == []


def test_bytes_are_shared_in_proportion():
    assert cap_bytes({"a": 0, "b": 10}, {"a": 900, "b": 110}, 100) == {"a": 90, "b": 20}
    assert cap_bytes({"a": 0}, {"a": 9}, 100) == {"a": 9}


def test_a_file_that_a_broker_is_allocating_is_not_yet_there(stored):
    path, places = stored
    (path / "commitlog" / f"{3 * SEGMENT:020d}").write_bytes(bytes(10))
    assert offsets(reader(path)) == places
    shutil.copy(path / "commitlog" / f"{0:020d}", path / "commitlog" / f"{3 * SEGMENT:020d}")
    assert [one.base for one in list_segments([path / "commitlog"], path)][-1] == 2 * SEGMENT
