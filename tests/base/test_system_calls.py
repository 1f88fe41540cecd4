"""What replaces system calls that only Linux has does the same; brokers, replicas and clients run without them."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from twinlog.base import system_calls

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="others have replacements")
def test_linux_has_its_own_calls():
    calls = ("allocate_blocks", "sync_data", "read_into", "write_from", "send_file", "yield_core")
    own = (os.posix_fallocate, os.fdatasync, os.preadv, os.pwritev, os.sendfile, os.sched_yield)
    assert tuple(getattr(system_calls, name) for name in calls) == own
    assert system_calls.sync_filesystem is system_calls._syncfs
    assert system_calls.forget_cached is system_calls._forget
    assert system_calls.lock_file is system_calls._lock_record
    assert system_calls.is_file_locked is system_calls._is_record_locked
    assert system_calls.RWF_NOWAIT and system_calls.MSG_MORE and system_calls._FINDS_HOLES


@pytest.mark.parametrize("finds_holes", [True, False])
@pytest.mark.parametrize("written", [0, 5_000, 3 << 20])
def test_a_file_gets_blocks_up_to_its_end_and_keeps_its_bytes(file, written, finds_holes, monkeypatch):
    monkeypatch.setattr(system_calls, "_FINDS_HOLES", finds_holes)
    os.pwrite(file, b"x" * written, 0)
    system_calls._fill_holes(file, 0, 3 << 20)
    assert os.fstat(file).st_size == 3 << 20
    assert os.fstat(file).st_blocks * 512 >= 3 << 20
    assert os.pread(file, 4 << 20, 0) == b"x" * written + bytes((3 << 20) - written)


def test_holes_between_bytes_are_filled_where_the_system_finds_them(file):
    os.ftruncate(file, 4 << 20)
    os.pwrite(file, b"data", 2 << 20)
    system_calls._fill_holes(file, 0, 4 << 20)
    assert os.fstat(file).st_blocks * 512 >= 4 << 20
    assert os.pread(file, 6, (2 << 20) - 1) == b"\0data\0"


def test_buffers_are_read_and_written_one_by_one_as_by_one_call(file):
    parts = [memoryview(b"abc"), memoryview(b""), memoryview(b"defg")]
    assert system_calls._write_each(file, parts, 2) == 7 == os.pwritev(file, parts, 2)
    plain, vector = ([bytearray(3), bytearray(2), bytearray(9)] for _ in range(2))
    assert system_calls._read_each(file, plain, 1) == os.preadv(file, vector, 1)
    assert plain == vector


def test_a_file_is_sent_by_copies_as_by_sendfile(file):
    os.pwrite(file, b"0123456789", 0)
    here, there = socket.socketpair()
    with here, there:
        assert system_calls._send_copied(here.fileno(), file, 3, 4) == 4
        assert there.recv(100) == b"3456"
        assert system_calls._send_copied(here.fileno(), file, 10, 4) == 0  # behind its end


def test_a_lock_of_the_whole_file_excludes_and_is_seen(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    one, two = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    assert not system_calls._is_whole_locked(two)
    system_calls._lock_whole(one)
    assert system_calls._is_whole_locked(two)
    with pytest.raises(BlockingIOError):
        system_calls._lock_whole(two)
    os.close(one)
    system_calls._lock_whole(two)
    os.close(two)


@pytest.mark.timeout(240)
def test_brokers_replicas_and_clients_run_without_linuxs_own_calls():
    """Another process, in which these calls are gone before Twinlog is imported."""
    tests = ["tests/test_broker_factory.py", "tests/client/test_sync.py"]
    chosen = "replica_has or advance or settings or producer_sends or push_consumer"
    plugins = ["-p", "tests.without_linux", "-p", "no:cacheprovider", "-p", "no:cov"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *tests, "-k", chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) == 6


def test_twinlog_dev_runs_without_linuxs_own_calls(tmp_path):
    run = "import sys, tests.without_linux, twinlog.cli.main; sys.exit(twinlog.cli.main.main())"
    command = [sys.executable, "-c", run, "dev", "--dir", str(tmp_path), "--port", "0", "--namesrv-port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "twinlog dev ready: name server 127.0.0.1:" in process.stdout.readline()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_only_one_module_asks_which_calls_there_are():
    names = "posix_fallocate|fdatasync|preadv|pwritev|sendfile|posix_fadvise|sched_yield|SEEK_DATA|SEEK_HOLE"
    rooms = [path for path in (ROOT / "src" / "twinlog").rglob("*.py") if "spark" not in path.parts]
    asking = [path.name for path in rooms if re.search(rf"os\.({names})|F_OFD_|import uvloop", path.read_text())]
    assert asking == ["system_calls.py"]


@pytest.mark.skipif(not hasattr(system_calls._LIBC, "mallopt"), reason="an allocator with rules of its own")
def test_freed_memory_is_there_for_the_next_large_buffers():
    script = """if True:
        import resource, sys
        from twinlog.base.system_calls import keep_freed_memory
        if sys.argv[1:]:
            keep_freed_memory()
        def use():
            return len([bytearray(size) for size in (256_000, 1_100_000, 4_200_000, 1_100_000)])
        use()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            use()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    faults = [
        int(subprocess.run([sys.executable, "-c", script, *keep], capture_output=True, check=True, text=True).stdout)
        for keep in ([], ["keep"])
    ]
    assert faults[0] > 1000 > 100 > faults[1]
