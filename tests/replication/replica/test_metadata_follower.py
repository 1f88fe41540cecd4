"""Rounds of changes make a replica's tables equal to its Twinlog master's, whatever happened between them."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.metadata.delta import decode_changes, decode_delta
from twinlog.replication.metadata.kinds import KIND_BY_NAME, table_of
from twinlog.replication.replica.metadata_follower import Follower
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.errors import BodyError

KINDS = tuple(KIND_BY_NAME)


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


class Twin:
    """Two sets of tables, and the rounds that make the second one follow the first."""

    def __init__(self) -> None:
        self.master, self.replica = open_tables(None, 1), open_tables(None, 2)
        self.replica.offsets.follows_master = True
        self.followers = {kind: Follower(kind) for kind in KINDS}
        self.bytes_moved = 0

    def round(self, rows_max: int = 10_000) -> int:
        """How many answers it took until nothing was left to tell."""
        answers = 0
        for kind, follower in self.followers.items():
            follower.begin_round(table_of(self.replica, kind))
        while self.page(rows_max):
            answers += 1
        return answers

    def page(self, rows_max: int) -> bool:
        """Whether the master had something to tell."""
        held = {kind: str(follower.held) for kind, follower in self.followers.items()}
        body = encode_changes(self.master, held, rows_max)
        self.bytes_moved += len(body or b"")
        for kind, raw in decode_changes(body).items():
            self.followers[kind].take(decode_delta(kind, raw), table_of(self.replica, kind))
        return body is not None

    def assert_equal(self) -> None:
        for kind in KINDS:
            ours, theirs = table_of(self.master, kind), table_of(self.replica, kind)
            assert ours.rows == theirs.rows, kind
            if kind != "requestModes":
                assert ours.version == theirs.version, kind
        assert self.master.groups.forbidden == self.replica.groups.forbidden


def test_a_first_round_brings_everything_and_the_next_nothing():
    twin = Twin()
    for number in range(25):
        twin.master.topics.put(f"T{number}", topic(f"T{number}"), 10 + number)
    twin.master.groups.put("G", SubscriptionGroupConfig(group_name="G"), 40)
    twin.master.groups.set_readable("G", "T1", False, 41)
    twin.master.offsets.commit("G", "T1", 0, 7, 42)
    twin.master.delay_offsets.update(3, 9, 43)
    assert twin.round(rows_max=10) > 2
    twin.assert_equal()
    before = twin.bytes_moved
    assert twin.round() == 0 and twin.bytes_moved == before


def test_one_change_among_many_costs_one_row():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(5000)}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.master.topics.put("T77", topic("T77", 8), 20)
    assert twin.round() == 1 and twin.bytes_moved - before < 600
    twin.assert_equal()


def test_what_the_master_no_longer_has_goes_also_after_its_restart():
    twin = Twin()
    twin.master.topics.put_all({name: topic(name) for name in "ABC"}, 10)
    twin.round()
    twin.master.topics.remove("B", 11)
    twin.round()
    twin.assert_equal()
    restarted = open_tables(None, 1)
    restarted.topics.put("C", topic("C"), 12)
    twin.master = restarted
    twin.round()
    assert set(twin.replica.topics.rows) == {"C"}


def test_readers_never_see_a_half_filled_table_while_pages_arrive():
    twin = Twin()
    twin.replica.topics.put("OLD", topic("OLD"), 1)
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(30)}, 10)
    sizes = {len(twin.replica.topics)}
    twin.replica.topics.on_change.append(lambda: sizes.add(len(twin.replica.topics)))
    twin.round(rows_max=7)
    assert sizes == {1, 30}


def test_a_topic_that_is_deleted_between_two_pages_of_the_whole_table_goes_on_the_replica_too():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(9)}, 10)
    twin.page(rows_max=4)
    twin.master.topics.remove("T0", 11)
    twin.round(rows_max=4)
    twin.assert_equal()


@pytest.mark.parametrize("both", [True, False])
def test_a_row_that_was_changed_on_the_replica_only_is_the_masters_again_after_two_rounds(both):
    twin = Twin()
    twin.master.topics.put_all({name: topic(name) for name in "ABC"}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.replica.topics.remove("A", 11)
    twin.replica.topics.put("X", topic("X"), 12)
    twin.replica.groups.set_readable("G", "A", False, 13)
    if both:  # a client told the master as well
        twin.master.topics.put("X", topic("X"), 14)
    twin.round()
    twin.round()
    twin.assert_equal()
    moved = twin.bytes_moved
    twin.round()
    assert moved > before and twin.bytes_moved == moved


def test_a_row_that_a_client_made_on_both_brokers_costs_one_row():
    twin = Twin()
    twin.master.topics.put_all({f"T{n}": topic(f"T{n}") for n in range(1000)}, 10)
    twin.round()
    before = twin.bytes_moved
    twin.replica.topics.put("X", topic("X"), 12)
    twin.master.topics.put("X", topic("X"), 13)
    twin.round()
    twin.round()
    assert twin.bytes_moved - before < 600
    twin.assert_equal()


def test_rows_with_many_queues_come_in_pages_that_fit_a_frame():
    twin = Twin()
    row = {queue: 10**12 + queue for queue in range(1024)}
    twin.master.offsets.adopt({f"T{n}@G": row for n in range(900)}, twin.master.offsets.version)
    held = {kind: str(follower.held) for kind, follower in twin.followers.items()}
    assert len(encode_changes(twin.master, held) or b"") < 4 * 1024 * 1024
    twin.round()
    twin.assert_equal()


def test_offsets_that_moved_on_while_the_master_was_dead_are_kept_although_it_had_saved_older_ones():
    twin = Twin()
    twin.master.offsets.commit("G", "T", 0, 50, 10)
    twin.round()
    twin.replica.offsets.commit("G", "T", 0, 100, 11)
    twin.master = open_tables(None, 12)
    twin.master.offsets.commit("G", "T", 0, 45, 12)  # what it had saved before it was killed
    twin.round()
    assert twin.replica.offsets.ahead() == {"T@G": {0: 100}}
    twin.master.offsets.commit("G", "T", 0, 20, 13)
    twin.round()
    assert twin.replica.offsets.of("G", "T") == {0: 20}, "without a restart a lower value is a reset"


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "commit", "delay", "page", "stray", "round", "restarted"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 7))
def test_any_history_of_changes_leaves_the_replica_equal(history, rows_max):
    twin, now_ms = Twin(), 100
    for what, number, value in history:
        now_ms += 1
        master: MetadataTables = twin.master
        if what == "put":
            master.topics.put(f"T{number}", topic(f"T{number}", value), now_ms)
        elif what == "remove":
            master.topics.remove(f"T{number}", now_ms)
        elif what == "commit":
            master.offsets.commit(f"G{number}", "T", 0, value, now_ms)
        elif what == "delay":
            master.delay_offsets.update(number + 1, value, now_ms)
        elif what == "page":
            twin.page(rows_max)
        elif what == "stray":
            twin.replica.topics.put(f"T{number}", topic(f"T{number}", value), now_ms)
        elif what == "round":
            twin.round(rows_max)
        else:  # the master restarts with what it had on disk
            again = open_tables(None, now_ms)
            again.topics.adopt(dict(master.topics.rows), master.topics.version)
            again.offsets.adopt(dict(master.offsets.rows), master.offsets.version)
            again.delay_offsets.adopt(dict(master.delay_offsets.rows), master.delay_offsets.version)
            twin.master = again
    twin.round(rows_max)
    twin.round(rows_max)
    assert twin.replica.topics.rows == twin.master.topics.rows
    assert twin.replica.topics.version == twin.master.topics.version
    assert twin.replica.offsets.rows == twin.master.offsets.rows
    assert twin.replica.delay_offsets.rows == twin.master.delay_offsets.rows


@given(
    st.sampled_from(["", "own", "other", "a:b", "x" * 65, "\n"]) | st.text(max_size=8),
    st.sampled_from([-(2**63), -1, 0, 1, 10**17, 10**18, 2**63 - 1]),
)
def test_a_page_of_any_epoch_and_revision_is_refused_or_followed_by_good_rounds(epoch, revision):
    twin = Twin()
    twin.master.topics.put("T", topic("T"), 1)
    twin.round()
    epoch = twin.master.topics.epoch if epoch == "own" else epoch
    page = {"epoch": epoch, "revision": revision, "dataVersion": {}, "changed": {}, "removed": ["T"]}
    raw = msgspec.Raw(msgspec.json.encode(page))
    with contextlib.suppress(BodyError):
        twin.followers["topics"].take(decode_delta("topics", raw), twin.replica.topics)
    twin.master.topics.put("U", topic("U"), 2)
    for _ in range(3):
        twin.round()
    assert "U" in twin.replica.topics.rows
