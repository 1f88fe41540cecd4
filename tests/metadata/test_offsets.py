"""Consumer offsets: commits, resets, versions, and how a replica follows its master."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.following import adopt_answer, changes_since

from twinlog.metadata.delay_offsets import DelayOffsetTable
from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.offsets import OffsetTable
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, OFFSETS
from twinlog.wire.bodies import DataVersion
from twinlog.wire.java_json.dialect import quote_bare_keys
from twinlog.wire.java_json.fastjson import loads

VECTORS = Path(__file__).parents[1] / "vectors"
VERSION = DataVersion(state_version=0, timestamp=77, counter=9)


def replica(**committed: int) -> OffsetTable:
    offsets = OffsetTable(None, 1)
    offsets.follows_master = True
    for queue, offset in committed.items():
        offsets.commit("G", "T", int(queue.removeprefix("q")), offset, 2)
    return offsets


def test_an_offset_is_known_after_its_commit_and_may_go_back():
    offsets = OffsetTable(None, 1)
    assert offsets.get("G", "T", 0) is None
    offsets.commit("G", "T", 0, 5, 2)
    offsets.commit("G", "T", 0, 3, 3)
    assert offsets.get("G", "T", 0) == 3
    assert offsets.of("G", "T") == {0: 3}


def test_the_version_steps_once_per_so_many_commits_and_the_revision_at_each():
    offsets = OffsetTable(None, 1, version_step=3)
    for offset in range(7):
        offsets.commit("G", "T", 0, offset, 10 + offset)
    assert offsets.version == DataVersion(state_version=0, timestamp=15, counter=2)
    assert offsets.revision == 7


def test_committing_the_same_offset_again_changes_nothing(tmp_path):
    offsets = OffsetTable(FileWithBackup(tmp_path / "consumerOffset.json"), 1)
    offsets.commit("G", "T", 0, 5, 2)
    offsets.save()
    offsets.commit("G", "T", 0, 5, 3)
    assert not offsets.dirty


def test_a_reset_stays_pending_until_a_pull_takes_it():
    offsets = OffsetTable(None, 1)
    offsets.commit("G", "T", 0, 50, 2)
    offsets.reset("G", "T", 0, 10, 3)
    assert offsets.reset_pending("G", "T", 0)
    assert offsets.get("G", "T", 0) == 10
    offsets.commit("G", "T", 0, 60, 4)  # a handler asks reset_pending first; the table itself obeys
    assert offsets.get("G", "T", 0) == 10
    assert offsets.take_reset("G", "T", 0) == 10
    assert offsets.take_reset("G", "T", 0) is None
    assert not offsets.reset_pending("G", "T", 0)


def test_the_pull_position_falls_back_on_the_committed_one():
    offsets = OffsetTable(None, 1)
    offsets.commit("G", "T", 0, 5, 2)
    assert offsets.pull_offset("G", "T", 0) == 5
    offsets.commit_pull("G", "T", 0, 8)
    assert offsets.pull_offset("G", "T", 0) == 8


def test_groups_and_topics_find_each_other_and_broadcast_rows_belong_to_neither():
    offsets = OffsetTable(None, 1)
    for topic, group in (("T", "G"), ("T", "H"), ("U", "G"), ("T", "B@broadcast")):
        offsets.commit(group, topic, 0, 1, 2)
    assert offsets.groups_of("T") == {"G", "H"}
    assert offsets.topics_of("G") == {"T", "U"}
    assert offsets.remove_topic("T", 3)
    assert set(offsets.rows) == {"U@G", "T@B@broadcast"}
    assert offsets.remove_group("G", 4)
    assert not offsets.remove_group("G", 5)
    assert set(offsets.rows) == {"T@B@broadcast"}


def test_a_clone_has_offsets_of_its_own():
    offsets = OffsetTable(None, 1)
    offsets.commit("G", "T", 0, 5, 2)
    offsets.clone("G", "H", "T", 3)
    offsets.commit("G", "T", 0, 6, 4)
    assert offsets.of("H", "T") == {0: 5}


def test_javas_file_with_bare_keys_is_read_and_its_content_written_with_quoted_ones(tmp_path):
    java = (VECTORS / "store" / "config" / "consumerOffset.json").read_bytes()
    file = FileWithBackup(tmp_path / "consumerOffset.json")
    file.path.write_bytes(java)
    offsets = OffsetTable(file, 1)
    assert offsets.load()
    ours, theirs = json.loads(b"".join(offsets.encode_file())), loads(java)
    assert ours["offsetTable"] == theirs["offsetTable"]
    assert ours["dataVersion"] == theirs["dataVersion"]
    assert {g: sorted(t) for g, t in ours["groupTopicMap"].items()} == {
        g: sorted(t) for g, t in theirs["groupTopicMap"].items()
    }


def test_javas_answers_to_a_replica_are_adopted():
    answers = VECTORS / "ha" / "metadata"
    offsets, delays = OffsetTable(None, 1), DelayOffsetTable(None, 1)
    assert adopt_answer(offsets, OFFSETS, (answers / "43-GET_ALL_CONSUMER_OFFSET.body.json.txt").read_bytes())
    assert adopt_answer(delays, DELAY_OFFSETS, (answers / "45-GET_ALL_DELAY_OFFSET.body.json.txt").read_bytes())
    assert offsets.get("GroupA", "TopicA", 2) == 4
    assert delays.get(1) == 1
    assert offsets.version.timestamp > 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"offsetTable":{"T@G":{"x":1}}}', b'{"offsetTable":5}'])
def test_an_answer_that_is_not_an_offset_table_changes_nothing(body):
    offsets = replica(q0=5)
    with pytest.raises(BrokenSnapshot):
        adopt_answer(offsets, OFFSETS, body)
    assert offsets.of("G", "T") == {0: 5}


def test_an_answer_of_4x_without_version_keeps_ours():
    offsets = OffsetTable(None, 1)
    version = offsets.version
    assert adopt_answer(offsets, OFFSETS, b'{"offsetTable":{"T@G":{0:5}}}')
    assert offsets.version == version
    assert not adopt_answer(offsets, OFFSETS, b'{"offsetTable":{"T@G":{0:5}}}')


def test_a_commit_on_the_replica_is_not_lowered_by_the_sync():
    offsets = replica()
    offsets.adopt({"T@G": {0: 2, 1: 7}}, VERSION)
    offsets.commit("G", "T", 0, 5, 3)
    offsets.adopt({"T@G": {0: 2, 1: 8}}, VERSION)
    assert offsets.of("G", "T") == {0: 5, 1: 8}
    assert offsets.ahead() == {"T@G": {0: 5}}
    offsets.adopt({"T@G": {0: 3, 1: 8}}, VERSION)
    assert offsets.of("G", "T") == {0: 5, 1: 8}


def test_the_master_catching_up_settles_the_replicas_own_commit():
    offsets = replica()
    offsets.adopt({"T@G": {0: 2}}, VERSION)
    offsets.commit("G", "T", 0, 5, 3)
    offsets.adopt({"T@G": {0: 6}}, VERSION)
    assert offsets.of("G", "T") == {0: 6}
    assert offsets.ahead() == {}


def test_a_reset_on_the_master_wins_over_the_replicas_own_commit():
    offsets = replica()
    offsets.adopt({"T@G": {0: 20}}, VERSION)
    offsets.commit("G", "T", 0, 25, 3)
    offsets.adopt({"T@G": {0: 10}}, VERSION)
    assert offsets.of("G", "T") == {0: 10}
    assert offsets.ahead() == {}


def test_an_offset_that_was_not_committed_here_follows_the_master_down_too():
    offsets = replica()
    offsets.adopt({"T@G": {0: 20}}, VERSION)
    offsets.adopt({"T@G": {0: 10}}, VERSION)
    assert offsets.of("G", "T") == {0: 10}


def test_rows_the_master_no_longer_has_go_unless_a_consumer_committed_here():
    offsets = replica()
    offsets.adopt({"T@G": {0: 1}, "T@H": {0: 1}}, VERSION)
    offsets.commit("H", "T", 0, 4, 3)
    offsets.adopt({}, VERSION)
    assert dict(offsets.rows) == {"T@H": {0: 4}}


def test_what_is_ahead_of_the_master_survives_a_restart_of_the_replica(tmp_path):
    file = FileWithBackup(tmp_path / "consumerOffset.json")
    before = OffsetTable(file, 1)
    before.follows_master = True
    before.adopt({"T@G": {0: 2}}, VERSION)
    before.commit("G", "T", 0, 5, 3)
    before.save()
    after = OffsetTable(file, 4)
    after.follows_master = True
    after.load()
    after.adopt({"T@G": {0: 2}}, VERSION)
    assert after.of("G", "T") == {0: 5}


def test_a_returning_master_takes_what_moved_on_and_nothing_else():
    master, offsets = OffsetTable(None, 1), replica()
    master.commit("G", "T", 0, 2, 1)
    master.commit("G", "T", 1, 9, 1)
    offsets.adopt(master.rows, master.version)
    offsets.commit("G", "T", 0, 5, 3)
    offsets.commit("G", "T", 1, 8, 3)
    assert master.raise_to(offsets.ahead(), 4) == 1
    assert master.of("G", "T") == {0: 5, 1: 9}


def test_a_replica_that_becomes_master_has_no_offsets_ahead_of_a_master():
    offsets = replica(q0=5)
    offsets.lead()
    assert offsets.ahead() == {}
    offsets.commit("G", "T", 0, 6, 3)
    assert offsets.ahead() == {}


def test_an_unchanged_answer_costs_no_write(tmp_path):
    offsets = OffsetTable(FileWithBackup(tmp_path / "consumerOffset.json"), 1)
    body = (VECTORS / "ha" / "metadata" / "43-GET_ALL_CONSUMER_OFFSET.body.json.txt").read_bytes()
    assert adopt_answer(offsets, OFFSETS, body)
    assert offsets.save()
    assert not adopt_answer(offsets, OFFSETS, body)
    assert not offsets.dirty


@given(st.lists(st.tuples(st.sampled_from("GH"), st.integers(0, 2), st.integers(0, 50)), max_size=40), st.data())
def test_differences_and_whole_tables_lead_a_replica_to_the_same_rows(steps, data):
    master, offsets, epoch, revision = OffsetTable(None, 1, version_step=5), replica(), "", 0
    for number, (group, queue, offset) in enumerate(steps):
        if offset == 0:
            master.remove(group, "T", number)
        else:
            master.commit(group, "T", queue, offset, number)
        if data.draw(st.booleans()):
            changes = changes_since(master, epoch, revision)
            if changes is None:
                offsets.adopt(master.rows, master.version)
            else:
                offsets.apply(changes)
            epoch, revision = master.epoch, master.revision
            assert dict(offsets.rows) == dict(master.rows)
            assert offsets.version == master.version


@given(st.dictionaries(st.text(), st.dictionaries(st.integers(-5, 9), st.integers(0, 99))))
def test_quoting_bare_keys_touches_no_string(table):
    bare = (
        "{"
        + ",".join(
            json.dumps(name) + ":{" + ", ".join(f"{queue} :{offset}" for queue, offset in row.items()) + "}"
            for name, row in table.items()
        )
        + "}"
    )
    expected = {name: {str(queue): offset for queue, offset in row.items()} for name, row in table.items()}
    assert json.loads(quote_bare_keys(bare.encode("utf-8", "surrogatepass"))) == expected


def test_delay_offsets_step_their_version_and_merge_the_masters(tmp_path):
    delays = DelayOffsetTable(FileWithBackup(tmp_path / "delayOffset.json"), 1, version_step=2)
    for offset in (1, 2, 2, 3, 4):
        delays.update(3, offset, 10)
    assert delays.version.counter == 2
    assert delays.adopt({1: 7}, VERSION)
    assert dict(delays.rows) == {3: 4, 1: 7}
    assert not delays.adopt({1: 7}, VERSION)
    delays.save()
    again = DelayOffsetTable(delays.file, 2)
    again.load()
    assert dict(again.rows) == {3: 4, 1: 7}
    assert not again.dirty


def test_where_a_deleted_group_or_topic_was_only_pulled_to_is_forgotten_too():
    offsets = OffsetTable(None, 1)
    for group, topic in (("G", "T"), ("H", "T"), ("H", "U")):
        offsets.commit_pull(group, topic, 0, 5)
    offsets.reset("G", "U", 0, 5, 1)
    offsets.remove_group("G", 2)
    offsets.remove_topic("T", 3)
    assert offsets.pull_offset("G", "T", 0) is None and offsets.pull_offset("H", "T", 0) is None
    assert not offsets.reset_pending("G", "U", 0)
    assert offsets.pull_offset("H", "U", 0) == 5
