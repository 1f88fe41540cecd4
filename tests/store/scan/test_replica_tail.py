"""A replica's log: the master's bytes, cut anywhere, followed record by record."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.store_at import SEGMENT, bodies, draft, fill, kill, open_store

from twinlog.store.errors import DamagedTransfer, DispatchFailed, OffsetGap


@pytest.fixture(scope="module")
def master_log(tmp_path_factory):
    """The bytes of a master's log of three files, and how many messages each queue has."""
    with open_store(tmp_path_factory.mktemp("master")) as store:
        places = fill(store, 250)
        log = b"".join(bytes(store.commit_log.chunk(at, SEGMENT)) for at in range(0, store.log_end, SEGMENT))
    return log, places


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from([1, 7, 100, 169, 5000, 40_000]), min_size=1, max_size=8))
def test_however_the_link_cuts_the_bytes_the_replica_equals_its_master(tmp_path_factory, master_log, steps):
    log, places = master_log
    with open_store(tmp_path_factory.mktemp("replica"), role="SLAVE") as store:
        at = turn = 0
        while at < len(log):
            length = max(steps[turn % len(steps)], len(log) // 200)
            assert store.append_raw(at, log[at : at + length]) == min(at + length, len(log))
            store.dispatch_pending()
            assert store.whole_end <= store.log_end
            at, turn = at + length, turn + 1
        assert store.log_end == store.whole_end == len(log)
        assert bodies(store, queue_id=0) == [b"body %d" % n for n in range(0, 250, 2)]
        assert bodies(store, queue_id=1) == [b"body %d" % n for n in range(1, 250, 2)]
        assert store.last_record_offset == places[-1].physical_offset
        copied = b"".join(bytes(store.commit_log.chunk(at, SEGMENT)) for at in range(0, len(log), SEGMENT))
        assert copied == log


def test_an_empty_replica_may_begin_at_any_file_of_its_master(tmp_path, master_log):
    log, places = master_log
    first = next(n for n, one in enumerate(places) if one.physical_offset >= SEGMENT)
    with open_store(tmp_path, role="SLAVE") as store:
        store.append_raw(SEGMENT, log[SEGMENT:])
        store.dispatch_pending()
        assert (store.log_start, store.log_end) == (SEGMENT, len(log))
        low = places[first].queue_offset
        assert store.min_offset("TopicA", first % 2) == low
        assert bodies(store, queue_id=first % 2, queue_offset=low)[0] == b"body %d" % first
    with open_store(tmp_path, role="SLAVE") as store:
        assert (store.log_start, store.log_end) == (SEGMENT, len(log))
        assert store.min_offset("TopicA", first % 2) == low


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path, master_log):
    log, _ = master_log
    with open_store(tmp_path, role="SLAVE") as store:
        store.append_raw(0, log[:1000])
        with pytest.raises(OffsetGap, match="ends at 1000, replicated bytes begin at 1001"):
            store.append_raw(1001, b"x")
        assert store.log_end == 1000


def test_a_part_of_a_record_is_dropped_before_the_replica_asks_again_or_closes(tmp_path, master_log):
    log, places = master_log
    with open_store(tmp_path, role="SLAVE") as store:
        store.append_raw(0, log[: places[5].physical_offset + 50])
        store.drop_partial_record()
        assert store.log_end == places[5].physical_offset
        store.append_raw(store.log_end, log[store.log_end : places[8].physical_offset + 1])
    assert not (tmp_path / "store" / "abort").exists()
    with open_store(tmp_path, role="SLAVE") as store:
        assert store.report.clean and store.log_end == places[8].physical_offset
        assert len(bodies(store)) == 4


def test_a_damaged_transfer_is_asked_for_again_and_a_damaged_master_is_stepped_over(tmp_path, master_log):
    log, places = master_log
    damaged = bytearray(log)
    damaged[places[3].physical_offset + 90] ^= 0xFF
    with open_store(tmp_path, role="SLAVE") as store:
        store.append_raw(0, damaged[: places[10].physical_offset])
        with pytest.raises(DamagedTransfer, match="asks the master for it again") as caught:
            store.dispatch_pending()
        assert isinstance(caught.value, OSError)
        assert store.whole_end == places[3].physical_offset
        store.drop_partial_record()
        assert store.log_end == places[3].physical_offset
        store.append_raw(store.log_end, damaged[store.log_end : places[10].physical_offset])
        store.dispatch_pending()  # the same bytes once more: they are the master's
        assert store.whole_end == places[10].physical_offset
        assert b"body 3" not in bodies(store, queue_id=1)
        assert bodies(store, queue_id=0) == [b"body %d" % n for n in range(0, 10, 2)]


def test_a_replica_that_becomes_master_goes_on_where_its_queues_end(tmp_path, master_log):
    log, places = master_log
    store = open_store(tmp_path, role="SLAVE", clock_ms=lambda: 5)
    store.append_raw(0, log[: places[7].physical_offset + 20])
    store.change_role("ASYNC_MASTER")
    assert store.log_end == places[7].physical_offset
    stored = store.append(draft(1000, queue_id=1))
    assert stored.physical_offset == places[7].physical_offset and stored.queue_offset == 3
    assert stored.store_timestamp >= places[6].store_timestamp
    kill(store)
    with open_store(tmp_path) as store:
        assert bodies(store, queue_id=1) == [b"body 1", b"body 3", b"body 5", b"body 1000"]


def test_a_killed_replica_keeps_whole_records(tmp_path, master_log):
    log, places = master_log
    store = open_store(tmp_path, role="SLAVE")
    store.append_raw(0, log[: places[100].physical_offset + 33])
    store.dispatch_pending()
    kill(store)
    with open_store(tmp_path, role="SLAVE") as store:
        assert store.log_end == store.whole_end == places[100].physical_offset
        store.append_raw(store.log_end, log[store.log_end :])
        store.dispatch_pending()
        assert len(bodies(store)) == 125


class FailsAt:
    """A dispatcher with a mistake in it: it cannot take the record at this offset, once or always."""

    def __init__(self, physical_offset):
        self.physical_offset = physical_offset

    def dispatch(self, batch):
        if self.physical_offset in [request.physical_offset for request in batch]:
            raise KeyError("nobody thought of this")

    def flush(self):
        pass


def test_a_batch_that_a_dispatcher_could_not_take_is_not_stepped_over(tmp_path, master_log):
    log, places = master_log
    failing = FailsAt(places[3].physical_offset)
    store = open_store(tmp_path, role="SLAVE", early_dispatchers=[failing])
    store.append_raw(0, log[: places[3].physical_offset])
    store.dispatch_pending()
    store.append_raw(store.log_end, log[store.log_end : places[5].physical_offset])
    with pytest.raises(DispatchFailed, match=f"records from {places[3].physical_offset} on"):
        store.dispatch_pending()
    failing.physical_offset = -1
    store.append_raw(store.log_end, log[store.log_end : places[8].physical_offset])
    for step in (store.dispatch_pending, store.drop_partial_record, lambda: store.change_role("ASYNC_MASTER")):
        with pytest.raises(DispatchFailed):
            step()
    store.close()
    assert (tmp_path / "store" / "abort").exists(), "so that the next start dispatches it again"
    with open_store(tmp_path, role="SLAVE") as store:
        assert store.log_end == places[8].physical_offset
        assert bodies(store, queue_id=0) + bodies(store, queue_id=1) == [
            b"body %d" % n for n in (0, 2, 4, 6, 1, 3, 5, 7)
        ]


def test_a_report_that_cannot_be_sent_keeps_no_record_from_its_queue(tmp_path, master_log):
    log, places = master_log

    def broken_link():
        raise ConnectionResetError

    with open_store(tmp_path, role="SLAVE") as store:
        store.append_raw(0, log[: places[4].physical_offset])
        with pytest.raises(ConnectionResetError):
            store.dispatch_pending(broken_link)
        store.append_raw(store.log_end, log[store.log_end : places[8].physical_offset])
        store.dispatch_pending()
        assert bodies(store, queue_id=0) + bodies(store, queue_id=1) == [
            b"body %d" % n for n in (0, 2, 4, 6, 1, 3, 5, 7)
        ]
