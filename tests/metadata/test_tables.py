"""Topics and groups: versions, pages, adoption of a master's table, and Java's files."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.following import adopt_answer, changes_since

from twinlog.base.json_checksum import check_json
from twinlog.metadata import persisted
from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.groups import GroupTable
from twinlog.metadata.request_modes import RequestModeTable
from twinlog.metadata.tables import open_tables
from twinlog.metadata.topics import TopicTable
from twinlog.replication.metadata.kinds import GROUPS, REQUEST_MODES, TOPICS
from twinlog.wire.bodies import DataVersion, MessageRequestMode, SubscriptionGroupConfig, TopicConfig
from twinlog.wire.java_json.fastjson import loads

VECTORS = Path(__file__).parents[1] / "vectors"
VERSION = DataVersion(state_version=0, timestamp=77, counter=9)


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def table(*names: str) -> TopicTable:
    result = TopicTable(None, 1_000)
    for name in names:
        result.put(name, topic(name), 2_000)
    return result


def test_every_change_steps_the_version_and_no_change_does_not():
    topics = table("A")
    assert topics.version == DataVersion(state_version=0, timestamp=2_000, counter=1)
    assert not topics.put("A", topic("A"), 3_000)
    assert topics.version.counter == 1
    assert topics.put("A", topic("A", 8), 3_000)
    assert topics.remove("A", 4_000) == topic("A", 8)
    assert topics.remove("A", 5_000) is None
    assert topics.version == DataVersion(state_version=0, timestamp=4_000, counter=3)


def test_a_seeded_row_takes_no_version_and_yields_to_the_file(tmp_path):
    file = FileWithBackup(tmp_path / "topics.json")
    first = TopicTable(file, 1)
    first.seed("TBW102", topic("TBW102", 8))
    assert first.version.counter == 0
    first.put("TBW102", topic("TBW102", 3), 2)
    assert first.save()
    second = TopicTable(file, 5)
    second.seed("TBW102", topic("TBW102", 8))
    assert second.load()
    assert second.get("TBW102") == topic("TBW102", 3)
    assert second.version == first.version
    assert not second.dirty


def test_a_seeded_row_that_the_file_lacks_makes_the_table_dirty(tmp_path):
    file = FileWithBackup(tmp_path / "topics.json")
    first = TopicTable(file, 1)
    first.put("A", topic("A"), 2)
    first.save()
    second = TopicTable(file, 5)
    second.seed("NEW_SYSTEM_TOPIC", topic("NEW_SYSTEM_TOPIC"))
    second.load()
    assert second.dirty
    assert set(second.rows) == {"A", "NEW_SYSTEM_TOPIC"}


def test_an_unchanged_table_is_never_rewritten(tmp_path):
    topics = TopicTable(FileWithBackup(tmp_path / "topics.json"), 1)
    topics.put("A", topic("A"), 2)
    assert topics.save()
    assert not topics.save()
    topics.put("A", topic("A"), 3)
    assert not topics.save()


def test_a_change_during_a_save_leaves_the_table_dirty(tmp_path):
    topics = TopicTable(FileWithBackup(tmp_path / "topics.json"), 1)
    topics.put("A", topic("A"), 2)
    pending = topics.begin_save()
    topics.put("B", topic("B"), 3)
    assert pending is not None
    pending.write()
    assert topics.dirty
    assert "B" not in json.loads(topics.file.path.read_text())["topicConfigTable"]
    topics.save()
    pending.write()  # late, and older than what is on disk
    assert "B" in json.loads(topics.file.path.read_text())["topicConfigTable"]


@given(st.lists(st.tuples(st.sampled_from("ABCDEFGHIJ"), st.integers(0, 3)), max_size=40), st.integers(1, 4), st.data())
def test_a_save_that_reuses_encoded_rows_writes_all_rows_of_now(steps, chunk_rows, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persisted, "CHUNK_ROWS", chunk_rows)
        topics = table()
        for number, (name, queues) in enumerate(steps):
            if queues:
                topics.put(name, topic(name, queues), number)
            else:
                topics.remove(name, number)
            if data.draw(st.booleans()):
                saved = topics.decode_file(b"".join(topics.encode_file()))
                assert (saved.topic_config_table, saved.data_version) == (topics.rows, topics.version)


def test_a_save_that_was_given_up_leaves_nothing_out_of_the_next(monkeypatch):
    monkeypatch.setattr(persisted, "CHUNK_ROWS", 2)
    topics = table(*"ABC")
    next(iter(topics.encode_file()))
    topics.put("D", topic("D"), 1)
    assert topics.decode_file(b"".join(topics.encode_file())).topic_config_table == topics.rows


def test_a_save_encodes_no_full_block_again_if_rows_were_only_added(monkeypatch):
    monkeypatch.setattr(persisted, "CHUNK_ROWS", 4)
    topics = table(*"ABCDEFGHIJ")
    b"".join(topics.encode_file())
    encoded, encode = [], msgspec.json.encode
    monkeypatch.setattr(msgspec.json, "encode", lambda value: encoded.append(value) or encode(value))
    for added, expected in (("K", ["IJK"]), ("LM", ["IJKL", "M"]), ("", ["M"])):
        encoded.clear()
        topics.put_all({name: topic(name) for name in added}, 1)
        b"".join(topics.encode_file())
        assert ["".join(value) for value in encoded if isinstance(value, dict)] == expected


def test_adopting_takes_the_masters_rows_and_version_exactly():
    topics = table("A", "LOCAL_ONLY")
    assert topics.adopt({"A": topic("A", 2), "B": topic("B")}, VERSION)
    assert dict(topics.rows) == {"A": topic("A", 2), "B": topic("B")}
    assert topics.version == VERSION
    assert not topics.adopt({"A": topic("A", 2), "B": topic("B")}, VERSION)


def test_a_reader_that_holds_the_rows_never_sees_them_half_adopted():
    topics = table("A", "B")
    before = topics.rows
    topics.adopt({"C": topic("C")}, VERSION)
    assert set(before) == {"A", "B"}


def test_adopting_touches_only_what_differs():
    topics = table("A", "B", "C")
    at = topics.revision
    topics.adopt({"A": topic("A"), "B": topic("B", 9)}, VERSION)
    changes = changes_since(topics, topics.epoch, at)
    assert changes is not None
    assert (list(changes.changed), changes.removed) == (["B"], ["C"])


@given(st.lists(st.tuples(st.sampled_from("ABCDEF"), st.integers(0, 3)), max_size=40), st.data())
def test_a_replica_that_applies_differences_equals_one_that_adopts_everything(steps, data):
    master, replica, epoch, revision = table(), table("OLD"), "", 0
    for number, (name, queues) in enumerate(steps):
        if queues:
            master.put(name, topic(name, queues), number)
        else:
            master.remove(name, number)
        if data.draw(st.booleans()):
            changes = changes_since(master, epoch, revision)
            if changes is None:
                replica.adopt(master.rows, master.version)
            else:
                replica.apply(changes)
            epoch, revision = master.epoch, master.revision
            assert dict(replica.rows) == dict(master.rows)
            assert replica.version == master.version


def test_one_changed_topic_in_many_is_a_difference_of_one():
    topics = TopicTable(None, 1)
    topics.put_all({f"T{n}": topic(f"T{n}") for n in range(5_000)}, 2)
    at = topics.revision
    topics.put("T17", topic("T17", 9), 3)
    changes = changes_since(topics, topics.epoch, at)
    assert changes is not None
    assert changes.changed == {"T17": topic("T17", 9)}


def test_pages_follow_the_names_and_cover_every_row_once():
    topics = table("C", "A", "E", "B", "D")
    pages = [list(topics.page(start, 2)) for start in range(0, 6, 2)]
    assert pages == [["A", "B"], ["C", "D"], ["E"]]
    assert topics.page(-1, 2).keys() == {"A", "B"}
    assert not topics.page(99, 2)


def test_javas_topics_file_is_read_and_written_back_with_the_same_content(tmp_path):
    java = VECTORS / "store" / "config" / "topics.json"
    file = FileWithBackup(tmp_path / "topics.json")
    file.path.write_bytes(java.read_bytes())
    topics = TopicTable(file, 1)
    assert topics.load()
    assert topics.get("TopicTyped").attributes == {"message.type": "DELAY"}  # type: ignore[union-attr]
    assert json.loads(b"".join(topics.encode_file())) == loads(java.read_bytes())


def test_javas_group_file_is_read_and_written_back_with_the_same_content(tmp_path):
    java = VECTORS / "store" / "config" / "subscriptionGroup.json"
    groups = GroupTable(FileWithBackup(java), 1)
    assert groups.load()
    assert json.loads(b"".join(groups.encode_file())) == loads(java.read_bytes())


def test_javas_answers_to_a_replica_are_adopted():
    topics, groups = TopicTable(None, 1), GroupTable(None, 1)
    answers = VECTORS / "ha" / "metadata"
    assert adopt_answer(topics, TOPICS, (answers / "21-GET_ALL_TOPIC_CONFIG.body.json.txt").read_bytes())
    assert adopt_answer(groups, GROUPS, (answers / "201-GET_ALL_SUBSCRIPTIONGROUP_CONFIG.body.json.txt").read_bytes())
    assert "TBW102" in topics
    assert "TOOLS_CONSUMER" in groups
    assert topics.version.timestamp > 0


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"topicConfigTable":7}', b'{"offsetTable":{}}', b"\xff\xfe", b"{" * 5_000]
)
def test_an_answer_that_is_not_a_topic_table_changes_nothing(body):
    topics = table("A")
    with pytest.raises(BrokenSnapshot, match="stays as it was"):
        adopt_answer(topics, TOPICS, body)
    assert list(topics.rows) == ["A"]


def test_a_forbidden_topic_is_one_groups_matter_and_survives_a_restart(tmp_path):
    file = FileWithBackup(tmp_path / "subscriptionGroup.json")
    groups = GroupTable(file, 1)
    groups.put("G", SubscriptionGroupConfig(group_name="G"), 2)
    assert groups.set_readable("G", "T1", False, 3)
    assert groups.set_readable("G", "T2", False, 4)
    assert not groups.set_readable("G", "T2", False, 5)
    assert groups.set_readable("G", "T1", True, 6)  # Java would forget T2 here
    assert groups.may_read("G", "T1")
    assert not groups.may_read("G", "T2")
    groups.save()
    again = GroupTable(file, 7)
    again.load()
    assert again.forbidden == {"G": {"T2": 4}}
    assert not again.dirty


def test_the_forbidden_table_travels_only_after_it_changed():
    groups = GroupTable(None, 1)
    groups.put("G", SubscriptionGroupConfig(group_name="G"), 2)
    at = groups.revision
    assert groups.forbidden_since(groups.epoch, at) is None
    groups.set_readable("G", "T", False, 3)
    assert groups.forbidden_since(groups.epoch, at) == {"G": {"T": 4}}
    assert groups.forbidden_since("another epoch", groups.revision) == {"G": {"T": 4}}


def test_request_modes_follow_the_master(tmp_path):
    modes = RequestModeTable(FileWithBackup(tmp_path / "messageRequestMode.json"), 1)
    mode = MessageRequestMode(topic="T", consumer_group="G", mode="POP", pop_share_queue_num=3)
    modes.set_mode(mode, 2)
    replica = RequestModeTable(None, 1)
    assert adopt_answer(replica, REQUEST_MODES, b"".join(modes.encode_file()))
    assert replica.mode_of("T", "G") == mode
    assert not adopt_answer(replica, REQUEST_MODES, b"".join(modes.encode_file()))
    assert adopt_answer(replica, REQUEST_MODES, b'{"messageRequestModeMap":{}}')
    assert replica.mode_of("T", "G") is None


def test_a_config_directory_of_java_loads_whole_and_needs_no_write(tmp_path):
    for source in (VECTORS / "store" / "config").iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    tables = open_tables(tmp_path, 1)
    assert tables.load() == []
    assert tables.offsets.get("GroupA", "TopicA", 2) == 4
    assert tables.delay_offsets.get(3) == 2
    assert tables.save() == []


def test_a_broken_file_is_reported_with_its_path(tmp_path):
    (tmp_path / "topics.json").write_text("{torn")
    tables = open_tables(tmp_path, 1)
    [problem] = tables.load()
    assert str(tmp_path / "topics.json") in problem
    assert "no backup" in problem


def test_a_digit_that_has_changed_on_the_disk_brings_the_backup_back(tmp_path):
    """Seen to fail without the check of the member twinlogCrc32: offset 35 is taken for the group's own."""
    tables = open_tables(tmp_path, 1_000)
    for offset in (5, 25):
        tables.offsets.commit("G", "T", 0, offset, 2_000)
        tables.save()
    path = tmp_path / "consumerOffset.json"
    text = path.read_text()
    assert '"0":25' in text
    before = path.stat()
    path.write_text(text.replace('"0":25', '"0":35'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = open_tables(tmp_path, 3_000)
    problems = again.load()
    assert again.offsets.get("G", "T", 0) == 5
    assert any("consumerOffset.json" in problem and "twinlogCrc32" in problem for problem in problems)


def test_what_an_operator_changed_by_hand_is_used_and_saved_with_a_new_checksum(tmp_path):
    """Seen to fail: the backup came back instead, and the next save set the operator's file aside."""
    tables = open_tables(tmp_path, 1_000)
    for offset in (5, 25):
        tables.offsets.commit("G", "T", 0, offset, 2_000)
        tables.save()
    path = tmp_path / "consumerOffset.json"
    path.write_text(path.read_text().replace('"0":25', '"0":35'))
    again = open_tables(tmp_path, 3_000)
    (line,) = again.load()
    assert str(path) in line and "changed by hand" in line
    assert again.offsets.get("G", "T", 0) == 35
    assert again.save() == ["consumerOffset.json"]
    assert check_json(path.read_bytes()) and not list(tmp_path.glob("*.broken*"))
    third = open_tables(tmp_path, 4_000)
    assert third.load() == [] and third.offsets.get("G", "T", 0) == 35


def test_a_change_by_hand_that_is_no_json_brings_the_backup_back_and_stays_on_disk(tmp_path):
    tables = open_tables(tmp_path, 1_000)
    for offset in (5, 25):
        tables.offsets.commit("G", "T", 0, offset, 2_000)
        tables.save()
    path = tmp_path / "consumerOffset.json"
    typo = path.read_text().replace('"0":25', '"0":35{')
    path.write_text(typo)
    again = open_tables(tmp_path, 3_000)
    (line,) = again.load()
    assert str(path) in line and "its backup was used" in line
    assert again.offsets.get("G", "T", 0) == 5 and again.save() == ["consumerOffset.json"]
    assert (tmp_path / "consumerOffset.json.broken-1").read_text() == typo
