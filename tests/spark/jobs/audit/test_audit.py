"""An audit names each planted difference and nothing else, without a JVM."""

import os
import shutil

import pytest
from tests.spark.jobs.audit.audit_stores import (
    BODY_AT,
    MESSAGES,
    append_more,
    compare,
    compare_sides,
    edit_json,
    log_bytes,
    make_master,
    record,
    with_body,
)
from tests.spark.own_time import own_time
from tests.store.store_at import NOW, SEGMENT, fill, open_store, write_log

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.audit import compare as compare_module
from twinlog.spark.jobs.audit.job import AuditJob, inspect_pair, pair_names, plan_tasks
from twinlog.spark.jobs.audit.metadata import compare_metadata
from twinlog.spark.jobs.audit.pairs import pairs_of
from twinlog.spark.jobs.endpoint import parse_endpoint


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    home = tmp_path_factory.mktemp("audit")
    return home, make_master(home / "master")


@pytest.fixture
def pair(original, tmp_path):
    """(master, replica, places), the replica a copy to spoil."""
    home, places = original
    return home / "master", shutil.copytree(home / "master", tmp_path / "replica"), places


def kinds(found):
    return [(one.kind, one.physical_offset) for one in found]


@pytest.mark.parametrize("range_bytes", [1000, 5000, SEGMENT, 1 << 20])
def test_equal_stores_have_no_findings(pair, range_bytes):
    master, replica, places = pair
    assert places[-1] > 3 * SEGMENT
    assert compare(master, replica, range_bytes=range_bytes, queues=True, check_crc=True, strict=True) == []


@pytest.mark.parametrize("range_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("number", [0, 7, 60, 61, MESSAGES - 1])
def test_a_flipped_body_byte_is_a_corrupt_record(pair, number, range_bytes):
    master, replica, places = pair
    write_log(replica, places[number] + BODY_AT + 1, b"\xff")
    (found,) = compare(master, replica, range_bytes=range_bytes)
    assert (found.kind, found.side, found.physical_offset) == ("corrupt", "replica", places[number])
    assert (found.item, found.queue_id, found.queue_offset) == ("TopicA", number % 2, number // 2)
    assert found.key == f"ID{number:030d}" and "CRC" in found.what


def test_every_byte_of_a_record_counts_wherever_ranges_are_cut(pair):
    master, replica, places = pair
    at, size = places[40], len(record(master, places[40]))
    for byte in range(size):
        old = log_bytes(replica, at + byte, 1)
        write_log(replica, at + byte, bytes([old[0] ^ 0x01]))
        found = compare(master, replica, range_bytes=1000, metadata=False)
        assert {one.physical_offset for one in found} == {at}, byte
        assert {one.kind for one in found} <= {"corrupt", "different"}
        write_log(replica, at + byte, old)


def test_a_flipped_property_byte_is_a_different_record_with_the_property_named(pair):
    master, replica, places = pair
    at = places[100] + record(master, places[100]).index(b"tag\x02")
    write_log(replica, at, b"T")
    (found,) = compare(master, replica)
    assert (found.kind, found.physical_offset, found.field) == ("different", places[100], "properties.TAGS")
    assert (found.master_value, found.replica_value) == ("properties.TAGS=tag", "properties.TAGS=Tag")


def test_a_replaced_record_of_the_same_length_is_different(pair):
    master, replica, places = pair
    write_log(replica, places[150], with_body(record(master, places[150]), b"BODY 150"))
    (found,) = compare(master, replica)
    assert (found.kind, found.physical_offset) == ("different", places[150])
    assert found.field == "bodyCRC, body"


@pytest.mark.parametrize("length", [b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x7f", b"\xff\xff\xff\xff"])
def test_a_corrupt_length_is_one_corrupt_record(pair, length):
    master, replica, places = pair
    write_log(replica, places[70], length)
    (found,) = compare(master, replica)
    assert (found.kind, found.side, found.physical_offset) == ("corrupt", "replica", places[70])
    assert found.key == f"ID{70:030d}"


def test_damage_on_the_master_is_reported_as_the_masters(pair):
    master, replica, places = pair
    write_log(replica, places[70], b"\xff")
    (found,) = compare(replica, master)
    assert (found.kind, found.side, found.physical_offset) == ("corrupt", "master", places[70])


def test_records_overwritten_with_zeros_are_missing(pair):
    master, replica, places = pair
    write_log(replica, places[80], bytes(places[83] - places[80]))
    assert kinds(compare(master, replica)) == [("missing", places[n]) for n in (80, 81, 82)]


def test_a_missing_segment_is_named_with_every_record_in_it(pair):
    master, replica, places = pair
    (replica / "store" / "commitlog" / f"{SEGMENT:020d}").unlink()
    found = compare(master, replica)
    assert kinds(found)[0] == ("segment", SEGMENT)
    assert kinds(found)[1:] == [("missing", place) for place in places if SEGMENT <= place < 2 * SEGMENT]
    assert {one.what for one in found[1:]} == {"the replica has no file for it"}


def test_a_replica_that_is_behind_has_lag_and_with_strict_its_missing_records_are_named(pair, tmp_path):
    _, replica, _ = pair
    ahead = shutil.copytree(replica, tmp_path / "ahead")
    more = append_more(ahead, 3)
    (lag,) = compare(ahead, replica)
    assert (lag.kind, lag.physical_offset) == ("lag", more[0]) and lag.size and lag.size > 300
    assert kinds(compare(ahead, replica, strict=True)) == [("lag", more[0]), *(("missing", place) for place in more)]


def test_records_behind_the_masters_end_are_extra(pair):
    master, replica, _ = pair
    more = append_more(replica, 2)
    found = compare(master, replica)
    assert kinds(found) == [("extra", place) for place in more]
    assert [one.key for one in found] == [f"ID{n:030d}" for n in (MESSAGES, MESSAGES + 1)]


def test_logs_that_part_at_their_ends_have_missing_and_extra_records(pair, tmp_path):
    _, replica, _ = pair
    master = shutil.copytree(replica, tmp_path / "other")
    append_more(master, 3, start=9)  # bodies one byte shorter than the replica's
    append_more(replica, 3, start=1000)
    found = compare(master, replica)
    assert {one.kind for one in found} <= {"different", "missing", "extra"}
    assert {one.key for one in found if one.kind != "extra"} == {f"ID{n:030d}" for n in (9, 10, 11)}


def test_bytes_that_belong_to_no_record_are_a_note(pair):
    master, replica, places = pair
    last = max(place for place in places if place < SEGMENT)
    blank = last + len(record(master, last))
    write_log(replica, blank + 20, b"left over")
    (found,) = compare(master, replica)
    assert found.kind == "note" and "outside of records" in found.what


def test_a_torn_end_of_a_stopped_store_is_corrupt(pair):
    master, replica, places = pair
    write_log(replica, places[-1] + 4, b"\xff\xff")
    found = compare(master, replica)
    assert [one.kind for one in found] == ["corrupt", "lag"]
    assert found[0].physical_offset == places[-1] and "magic" in found[0].what


def test_bodies_of_equal_records_are_checked_on_request(pair, tmp_path):
    _, replica, places = pair
    write_log(replica, places[55] + BODY_AT, b"\xff")
    twin = shutil.copytree(replica, tmp_path / "twin")
    assert compare(replica, twin) == []
    (found,) = compare(replica, twin, check_crc=True)
    assert (found.kind, found.side, found.physical_offset) == ("corrupt", "both", places[55])


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (
            "topics.json",
            lambda d: d["topicConfigTable"]["TopicA"].update(perm=4),
            ("topics", "TopicA", "perm", "6", "4"),
        ),
        ("subscriptionGroup.json", lambda d: d["subscriptionGroupTable"].clear(), ("groups", "GroupA", "*", ..., None)),
        (
            "consumerOffset.json",
            lambda d: d["offsetTable"]["TopicA@GroupA"].update({"1": 89}),
            ("offsets", "TopicA@GroupA", "1", "90", "89"),
        ),
        ("delayOffset.json", lambda d: d["offsetTable"].update({"3": 18}), ("delayOffsets", "3", "offset", "17", "18")),
        (
            "topics.json",
            lambda d: d["dataVersion"].update(counter=7),
            ("dataVersion", "topics", "counter", "1", "7"),
        ),
    ],
)
def test_a_metadata_difference_is_named_by_kind_key_and_field(pair, name, change, expected):
    master, replica, _ = pair
    edit_json(replica, name, change)
    (found,) = compare(master, replica)
    assert found.kind == "metadata"
    told = (found.item, found.key, found.field, found.master_value, found.replica_value)
    assert all(want is ... or want == got for want, got in zip(expected, told, strict=True)), told


def test_units_of_consume_queues_are_compared_on_request(pair):
    master, replica, _ = pair
    queue = replica / "store" / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[20 * 5 + 19] ^= 1
    queue.write_bytes(data)
    assert compare(master, replica) == []
    (found,) = compare(master, replica, queues=True)
    assert (found.kind, found.item, found.queue_id, found.queue_offset) == ("unit", "TopicA", 1, 5)
    shutil.rmtree(replica / "store" / "consumequeue" / "TopicA" / "0")
    found = compare(master, replica, queues=True)
    assert [(one.what, one.queue_id) for one in found[:-1]] == [("the replica has no unit for it", 0)] * 150


# -- what cannot be compared ---------------------------------------------------------------------------


def test_a_store_that_cannot_be_read_is_an_error_with_its_name(pair, tmp_path):
    master, replica, _ = pair
    (found,) = compare(master, tmp_path / "nowhere")
    assert found.kind == "error" and "nowhere" in found.what
    os.truncate(replica / "store" / "commitlog" / f"{SEGMENT:020d}", 100)
    (found,) = compare(master, replica)
    assert found.kind == "error" and "has 100 bytes" in found.what


def test_the_error_of_a_store_without_metadata_says_how_to_leave_it_out(pair):
    master, replica, _ = pair
    shutil.rmtree(replica / "store" / "config")
    (found,) = compare(master, replica)
    assert found.kind == "error" and "config" in found.what
    assert compare(master, replica, metadata=False) == []


def test_a_broken_metadata_file_is_an_error(pair):
    master, replica, _ = pair
    (replica / "store" / "config" / "topics.json").write_text("{")
    (found,) = compare(master, replica)
    assert found.kind == "error" and "topics.json" in found.what


def test_an_unreachable_broker_is_an_error_with_its_address(pair):
    master, _, _ = pair
    (found,) = compare_sides(parse_endpoint(str(master / "store")), parse_endpoint("127.0.0.1:1"), settle_s=0.0)
    assert found.kind == "error" and "127.0.0.1:1" in found.what


def test_logs_without_a_common_byte_cannot_be_compared(pair, tmp_path):
    master, replica, _ = pair
    for number in range(3):
        (replica / "store" / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    short = shutil.copytree(master, tmp_path / "short")
    for number in (1, 2, 3):
        (short / "store" / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    (found,) = compare(short, replica)
    assert found.kind == "error" and "nothing to compare" in found.what


def test_a_replica_that_begins_later_is_a_note_and_an_empty_one_is_only_behind(pair, tmp_path):
    master, replica, _ = pair
    (replica / "store" / "commitlog" / f"{0:020d}").unlink()
    (found,) = compare(master, replica)
    assert (found.kind, found.physical_offset, found.size) == ("note", 0, SEGMENT)
    with open_store(tmp_path / "empty") as store:
        store.commit_log.tail()
        assert store.log_end == 0
        found = compare(master, tmp_path / "empty", metadata=False)
    assert [one.kind for one in found] == ["lag"]


def test_files_of_different_sizes_are_reported_beside_what_follows_from_them(tmp_path):
    make_master(tmp_path / "a")
    with open_store(tmp_path / "b", settings={"segment_bytes": 2 * SEGMENT}) as store:
        fill(store, 300)
    found = compare(tmp_path / "a", tmp_path / "b", metadata=False)
    (note,) = [one.what for one in found if one.kind == "note"]
    assert note.startswith(f"the master's files have {SEGMENT} bytes, the replica's {2 * SEGMENT}: ")
    differences = [one.physical_offset for one in found if one.kind in ("missing", "extra", "different")]
    assert differences and min(differences) > SEGMENT - 500


@pytest.mark.parametrize("sides", [["/a"], ["/a", "/b", "/c"], ["/a", "/a"], ["a b", "/b"]])
def test_sides_that_are_no_pairs_are_refused(sides):
    with pytest.raises(BadOption):
        pairs_of(sides)


def test_a_log_may_lie_elsewhere(pair, tmp_path):
    master, replica, _ = pair
    (replica / "store" / "commitlog").rename(tmp_path / "log")
    sides = parse_endpoint(str(master / "store")), parse_endpoint(f"{replica}/store@{tmp_path}/log")
    assert compare_sides(*sides, settle_s=0.0, queues=True) == []


def test_pairs_have_names_of_their_own():
    one, two = parse_endpoint("/a"), parse_endpoint("127.0.0.1:10911")
    assert pair_names([(one, two), (two, one), (one, two)]) == [
        "1: /a | 127.0.0.1:10911",
        "127.0.0.1:10911 | /a",
        "3: /a | 127.0.0.1:10911",
    ]


# -- while brokers write -------------------------------------------------------------------------------


def test_a_log_that_grows_during_the_audit_is_compared_up_to_where_it_was(pair):
    _, replica, _ = pair
    twin = shutil.copytree(replica, replica.parent / "twin")
    sides = parse_endpoint(str(twin / "store")), parse_endpoint(str(replica / "store"))
    job = AuditJob(pairs=(sides,), range_bytes=5000)
    plan = inspect_pair("pair", *sides, job)
    tasks = plan_tasks(plan, 0, job)
    append_more(twin, 200)
    found = [one.kind for task in tasks for one in compare_module.run_task(plan, task)]
    assert set(found) == {"compared"}


def test_bytes_that_were_still_being_written_are_no_difference(pair, monkeypatch):
    master, replica, places = pair
    good = record(master, places[-1])
    monkeypatch.setattr(compare_module, "time", own_time(sleep=lambda s: write_log(replica, places[-1], good)))
    with open_store(replica) as store:
        assert store.log_end
        write_log(replica, places[-1] + BODY_AT, b"\0\0")
        assert compare(master, replica, metadata=False) == []


def test_files_that_a_broker_deletes_meanwhile_are_a_note(pair):
    master, replica, _ = pair
    sides = parse_endpoint(str(master / "store")), parse_endpoint(str(replica / "store"))
    job = AuditJob(pairs=(sides,), range_bytes=SEGMENT)
    plan = inspect_pair("pair", *sides, job)
    (replica / "store" / "commitlog" / f"{0:020d}").unlink()
    found = [one for task in plan_tasks(plan, 0, job) for one in compare_module.run_task(plan, task)]
    assert [one.kind for one in found] == ["note", "compared", "compared", "compared"]


def offsets(value, version=1):
    return {
        "topics": {},
        "groups": {},
        "offsets": {"T@G": {"0": str(value)}},
        "delayOffsets": {},
        "dataVersion": {"offsets": {"stateVersion": "0", "counter": str(version), "timestamp": str(NOW)}},
    }


def test_metadata_that_follows_late_is_not_a_difference_and_what_does_not_follow_is():
    following = iter(
        [(offsets(90, 1), offsets(100, 2)), (offsets(95, 1), offsets(150, 3)), (offsets(110, 2), offsets(200, 4))]
    )
    assert compare_metadata("pair", lambda: next(following), settle_s=30, sleep=lambda s: None) == []
    standing = ((offsets(90), offsets(100 + n)) for n in range(100))
    found = compare_metadata("pair", lambda: next(standing), settle_s=9, sleep=lambda s: None)
    assert [(one.item, one.replica_value) for one in found] == [("offsets", "90")]


def test_a_java_replica_may_count_on_from_its_masters_version_while_rows_are_equal():
    def compare_once(replica, master):
        snapshots = iter([(replica, master)])
        return compare_metadata("pair", lambda: next(snapshots), settle_s=0, replica_is_java=True)

    assert [one.kind for one in compare_once(offsets(90, 3), offsets(90, 2))] == ["note"]
    assert [one.kind for one in compare_once(offsets(90, 1), offsets(90, 2))] == ["metadata"]
    assert [one.kind for one in compare_once(offsets(90, 3), offsets(91, 2))] == ["metadata", "metadata"]


def test_delay_offsets_that_a_live_java_replica_does_not_tell_are_a_note():
    master = {**offsets(90), "delayOffsets": {"3": {"offset": "5"}}}
    snapshots = iter([(offsets(90), master)] * 2)
    live = {"settle_s": 0, "replica_is_java": True}
    (found,) = compare_metadata("pair", lambda: next(snapshots), replica_is_live=True, **live)
    assert found.kind == "note" and "delay offsets" in found.what
    (found,) = compare_metadata("pair", lambda: next(snapshots), replica_is_live=False, **live)
    assert (found.kind, found.item) == ("metadata", "delayOffsets")


def test_stopped_stores_are_looked_at_once():
    snapshots = iter([(offsets(90), offsets(100))])
    assert len(compare_metadata("pair", lambda: next(snapshots), settle_s=0, sleep=lambda s: None)) == 1
