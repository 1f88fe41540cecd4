"""The n-th write, allocation, flush or removal fails: nothing that was stored is lost, and the store says so."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from tests.store.store_at import SEGMENT, bodies, draft, fill, kill, open_store

from twinlog.store.errors import AllocationFailed, FlushFailed, NotClosed, StoreError
from twinlog.store.file_ops import FileOps
from twinlog.store.log.append import PutStatus


class Failing(FileOps):
    """Fails the call number `nth` (and those after it, if `for_good`) of the given kinds."""

    def __init__(self, nth, kinds=("allocate", "write", "flush", "flush_directory", "remove"), *, for_good=False):
        self.calls = 0
        self.failed = 0
        self._nth, self._kinds, self._for_good = nth, kinds, for_good

    def _count(self, kind):
        if kind in self._kinds:
            self.calls += 1
            if self.calls == self._nth or (self._for_good and self.calls > self._nth):
                self.failed += 1
                raise OSError(errno.EIO if kind == "flush" else errno.ENOSPC, f"injected into {kind}")

    def allocate(self, path, size):
        self._count("allocate")
        return super().allocate(path, size)

    def write(self, descriptor, data, at):
        try:
            self._count("write")
        except OSError:
            super().write(descriptor, memoryview(data).cast("B")[: len(data) // 2], at)  # a torn one
            raise
        super().write(descriptor, data, at)

    def flush(self, descriptor):
        self._count("flush")
        super().flush(descriptor)

    def flush_directory(self, path):
        self._count("flush_directory")
        super().flush_directory(path)

    def remove(self, path):
        self._count("remove")
        super().remove(path)


def live_a_little(path, ops):
    """Everything a broker does to its store; returns the bodies that were stored, by queue."""
    stored = {0: [], 1: []}
    try:
        store = open_store(path, ops=ops)
    except (OSError, StoreError):
        return stored
    try:
        for number in range(150):
            place = store.append(draft(number, queue_id=number % 2))
            if place.ok:
                assert place.queue_offset == len(stored[number % 2])
                stored[number % 2].append(b"body %d" % number)
            if number % 10 == 0:
                store.dispatch_pending()
            for step in (store.flush, store.flush_queues, store.save_checkpoint) if number % 40 == 0 else ():
                with contextlib.suppress(OSError, StoreError):
                    step()
    finally:
        kill(store)
    return stored


@pytest.mark.parametrize("for_good", [False, True])
def test_whichever_call_fails_every_stored_message_is_there_after_a_restart(tmp_path, for_good):
    healthy = Failing(0)
    live_a_little(tmp_path / "healthy", healthy)
    assert healthy.calls > 30
    for nth in range(1, healthy.calls + 1):
        path = tmp_path / str(nth)
        ops = Failing(nth, for_good=for_good)
        stored = live_a_little(path, ops)
        assert ops.failed
        with open_store(path) as store:
            assert {queue_id: bodies(store, queue_id=queue_id) for queue_id in (0, 1)} == stored, nth
            assert all(not damage.begin < store.log_end for damage in store.report.damages)
            assert store.append(draft(999)).queue_offset == len(stored[0])


def test_a_full_disk_is_a_status_and_the_store_goes_on_when_there_is_space_again(tmp_path):
    ops = Failing(2, ("allocate",), for_good=True)
    store = open_store(tmp_path, ops=ops)
    statuses = {store.append(draft(number, queue_id=0)).status for number in range(150)}
    assert statuses == {PutStatus.PUT_OK, PutStatus.CREATE_SEGMENT_FAILED}
    kept = store.log_end
    assert kept == SEGMENT
    ops._nth, ops._for_good = 0, False
    after = store.append(draft(1000))
    assert after.ok and after.physical_offset == SEGMENT
    store.close()
    assert sorted(path.name for path in (tmp_path / "store" / "commitlog").iterdir()) == ["0" * 20, f"{SEGMENT:020d}"]


def test_a_failed_flush_ends_all_promises_until_a_restart(tmp_path):
    ops = Failing(0, ("flush",))
    store = open_store(tmp_path, ops=ops)
    first = fill(store, 3)
    store.flush()
    fill(store, 3, start=3)
    ops._nth = ops.calls + 1
    with pytest.raises(FlushFailed, match="restart the broker"):
        store.flush()
    assert store.flushed_end == first[-1].end
    assert store.append(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(FlushFailed):  # although the disk would take it now
        store.close()
    assert store.flushed_end == first[-1].end
    assert (tmp_path / "store" / "abort").exists()
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == 3 and store.append(draft()).ok


def test_queues_that_cannot_be_written_refuse_sends_until_they_can(tmp_path):
    ops = Failing(0, ("write",))
    with open_store(tmp_path, ops=ops) as store:
        fill(store, 10)
        ops._nth, ops._for_good = ops.calls + 1, True
        with pytest.raises(OSError, match="injected"):
            store.flush_queues()
        assert store.append(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        ops._nth, ops._for_good = 0, False
        store.flush_queues()
        assert store.append(draft(10)).ok
        store.dispatch_pending()
        assert len(bodies(store)) == 6


def test_queues_that_stay_unwritable_are_logged_once_and_when_they_are_back(tmp_path, caplog):
    caplog.set_level("INFO")
    ops = Failing(1 << 30, ("write",), for_good=True)
    with open_store(tmp_path, ops=ops) as store:
        fill(store, 10)
        ops._nth = 0
        for _ in range(3):
            with pytest.raises(OSError, match="injected"):
                store.flush_queues()
        ops._nth = 1 << 30
        store.flush_queues()
        assert not store.queues_failed
    assert caplog.text.count("queues cannot be written") == 1
    assert caplog.text.count("queues can be written again") == 1


def test_the_error_of_an_unclean_close_names_what_becomes_of_the_messages(tmp_path):
    ops = Failing(1 << 30, ("write",), for_good=True)
    store = open_store(tmp_path, ops=ops)
    fill(store, 10)
    ops._nth = 0
    with pytest.raises(NotClosed, match=r"not closed cleanly.*injected.*next start rebuilds the rest"):
        store.close()
    with open_store(tmp_path) as store:
        assert len(bodies(store)) + len(bodies(store, queue_id=1)) == 10


def test_an_allocation_that_fails_leaves_no_file_behind(tmp_path):
    ops = FileOps()
    ops.allocate = Failing(1, ("allocate",)).allocate
    with open_store(tmp_path, ops=ops) as store:
        assert store.append(draft()).status is PutStatus.CREATE_SEGMENT_FAILED
        assert not list((tmp_path / "store" / "commitlog").iterdir())
        with pytest.raises(AllocationFailed, match="free space"):
            store.commit_log._ops.allocate = Failing(1, ("allocate",)).allocate
            store.commit_log.tail()


WRITER = """
    import sys
    from pathlib import Path
    from tests.store.store_at import draft, open_store
    store = open_store(Path(sys.argv[1]))
    print("open", flush=True)
    for number in range(10**9):
        place = store.append(draft(number, queue_id=number % 2))
        if number % 7 == 0:
            store.dispatch_pending()
        if number % 50 == 0:
            store.flush()
            store.flush_queues()
            store.save_checkpoint()
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
"""


@pytest.mark.parametrize("lines", [1, 60, 333])
def test_a_process_killed_while_it_writes_loses_no_message_it_reported(tmp_path, lines):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        for _ in range(lines + 1):
            assert writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        reported = [line for line in writer.stdout.read().split("\n") if line]
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    last = int(reported[-2]) if len(reported) > 1 else lines - 1
    with open_store(tmp_path) as store:
        assert not store.report.clean and not store.report.damages
        for queue_id in (0, 1):
            found = bodies(store, queue_id=queue_id)
            assert found == [b"body %d" % (2 * n + queue_id) for n in range(len(found))]
            assert 2 * len(found) + queue_id > last
