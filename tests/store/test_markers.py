"""Checkpoint, lock and abort marker, byte for byte as Java knows them."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest
from tests.store import golden
from tests.store.store_at import NOW, fill, kill, open_store

from twinlog.store.errors import StoreLocked, StoreUnusable
from twinlog.store.lock import StoreLock, is_locked
from twinlog.store.recovery.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint, load_checkpoint


def test_the_checkpoint_of_java_is_read_and_written_byte_for_byte(tmp_path):
    data = (golden.unpack("normal", tmp_path) / "checkpoint").read_bytes()
    expected = golden.manifest("normal")["checkpoint"]
    checkpoint = decode_checkpoint(data)
    assert checkpoint.physic_timestamp == expected["physicMsgTimestamp"]
    assert checkpoint.logics_timestamp == expected["logicsMsgTimestamp"]
    ours = encode_checkpoint(checkpoint)
    assert ours[:64] == data[:64] and len(ours) == len(data) == 4096
    assert not any(data[64:])  # where ours has a copy, which Java does not read


def test_a_missing_or_short_checkpoint_claims_nothing(tmp_path):
    assert load_checkpoint(tmp_path / "checkpoint") == Checkpoint() == decode_checkpoint(b"\x01" * 39)
    assert Checkpoint(5000, 9000).safe_timestamp() == 2000
    assert Checkpoint(5000, 9000, 4000).safe_timestamp(with_index=True) == 1000
    assert Checkpoint(1, 2).safe_timestamp() == 0


def test_the_checkpoint_never_claims_what_is_not_on_disk(tmp_path):
    times = iter(range(NOW, NOW + 100))
    store = open_store(tmp_path, clock_ms=lambda: next(times))
    fill(store, 10)
    store.save_checkpoint()
    assert load_checkpoint(tmp_path / "store" / "checkpoint").safe_timestamp() == 0
    store.flush()
    assert store.checkpoint.physic_timestamp == NOW + 9 and store.checkpoint.logics_timestamp == 0
    fill(store, 5, start=10)
    store.flush_queues()
    assert (store.checkpoint.physic_timestamp, store.checkpoint.logics_timestamp) == (NOW + 9, NOW + 14)
    kill(store)


LOCKER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_store_that_another_process_has_locked_is_left_alone(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        assert is_locked(root)
        with pytest.raises(StoreLocked, match="locked by a running broker"):
            open_store(tmp_path)
        assert sorted(os.listdir(root)) == ["lock"]
        other.stdin.close()
    assert not is_locked(root)
    open_store(tmp_path).close()


def test_our_lock_is_the_record_lock_that_java_takes(tmp_path):
    lock = StoreLock.acquire(tmp_path)
    try:
        assert (tmp_path / "lock").read_bytes() == b"lock" and is_locked(tmp_path)
        code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], capture_output=True)
        assert done.returncode and b"BlockingIOError" in done.stderr
    finally:
        lock.release()
    assert fcntl.LOCK_EX and not is_locked(tmp_path)


def test_the_abort_marker_names_the_process_and_stays_until_a_clean_close(tmp_path):
    store = open_store(tmp_path)
    assert (tmp_path / "store" / "abort").read_text() == str(os.getpid())
    kill(store)
    assert (tmp_path / "store" / "abort").exists()
    open_store(tmp_path).close()
    assert not (tmp_path / "store" / "abort").exists()


def test_the_abort_marker_stays_when_the_store_may_not_be_written(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 3)
        store.flags.set(store.flags.NOT_WRITABLE)
    assert (tmp_path / "store" / "abort").exists()


def test_a_lock_file_that_cannot_be_written_is_not_taken_for_a_running_broker(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(StoreUnusable, match=r"No space left on device; check storePathRootDir"):
        open_store(tmp_path)
