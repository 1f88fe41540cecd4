"""Segments and the log they make: full size, real blocks, nothing foreign."""

import ctypes
import mmap
import os

import pytest

from twinlog.store.errors import ForeignFile, SegmentGap, SegmentSizeMismatch, StoreClosed
from twinlog.store.log.commit_log import CommitLog, disk_used_ratio
from twinlog.store.log.segment import Segment

SIZE = 64 * 1024


def open_log(path, **options):
    log = CommitLog([path / "commitlog"], SIZE, **options)
    log.load()
    return log


def test_a_new_segment_owns_all_its_blocks(tmp_path):
    segment = Segment.create(tmp_path, 3 * SIZE, SIZE)
    found = os.stat(tmp_path / f"{3 * SIZE:020d}")
    assert found.st_size == SIZE and found.st_blocks * 512 >= SIZE
    segment.close()


def test_a_sparse_segment_of_java_gets_its_blocks_before_it_is_written(tmp_path):
    path = tmp_path / ("0" * 20)
    path.touch()
    os.truncate(path, SIZE)
    segment = Segment.open(path, SIZE, writable=True)
    segment.secure()
    assert os.stat(path).st_blocks * 512 >= SIZE
    segment.close()


def test_opening_a_log_for_writing_secures_the_segment_that_will_be_written(tmp_path):
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / ("0" * 20)
    path.touch()
    os.truncate(path, SIZE)
    log = open_log(tmp_path)
    log.truncate(0)
    log.tail()
    assert os.stat(path).st_blocks * 512 >= SIZE
    log.close()


def test_the_next_segment_is_allocated_ahead_and_removed_if_it_is_not_needed(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, bytes(SIZE // 2))
    log._next.result()
    assert len(list((tmp_path / "commitlog").iterdir())) == 2
    log.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == 1


class Recorded:
    """A mapping that notes which bytes are written, in order."""

    def __init__(self, inner):
        self.inner, self.written = inner, []

    def __setitem__(self, key, value):
        self.written.append(key)
        self.inner[key] = value


def test_a_copy_of_a_masters_bytes_meets_no_page_for_the_first_time(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, b"a" * 100)
    segment = log.tail()
    segment._map = recorded = Recorded(segment.map)
    data = bytes(range(256)) * 40
    log.write_raw(100, data)
    segment._map = recorded.inner
    assert recorded.written == [4096, 8192, slice(100, 100 + len(data))]
    assert segment.map[: 100 + len(data)] == b"a" * 100 + data
    log.close()


def test_views_outlive_the_segment_they_look_at(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, b"a" * SIZE * 2)
    log.flush()
    view = log.slice(0, 10)
    assert log.drop_oldest() is not None
    log.close()
    assert bytes(view) == b"a" * 10


def test_bytes_are_found_only_where_the_log_has_them(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(5 * SIZE + 100, b"x" * SIZE)
    assert (log.log_start, log.log_end) == (5 * SIZE, 6 * SIZE + 100)
    assert bytes(log.slice(6 * SIZE, 100)) == b"x" * 100
    for offset, size in ((6 * SIZE, 101), (6 * SIZE - 10, 20), (4 * SIZE, 1), (9 * SIZE, 1), (6 * SIZE, -1)):
        assert log.slice(offset, size) is None
    assert len(log.chunk(5 * SIZE + 100, 10**6)) == SIZE - 100
    assert log.chunk(log.log_end, 10) is None
    log.close()


def test_a_cut_leaves_zeros_behind_the_end_and_no_later_files(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, b"x" * (3 * SIZE + 5))
    log.truncate(SIZE + 10)
    assert len(log.segments) == 2 and log.log_end == SIZE + 10
    assert bytes(log.segments[1].map) == b"x" * 10 + bytes(SIZE - 10)
    log.write_raw(SIZE + 10, b"y")
    log.close()


def test_a_log_in_pieces_is_refused_with_the_piece_that_is_missing(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, bytes(3 * SIZE))
    log.close()
    (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
    with pytest.raises(SegmentGap, match=f"no file for bytes {SIZE} to {2 * SIZE}"):
        open_log(tmp_path)


def test_a_foreign_file_or_a_short_one_before_the_last_is_refused_and_directories_are_skipped(tmp_path):
    (tmp_path / "commitlog" / "lost+found").mkdir(parents=True)
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(SIZE - 1))
    (tmp_path / "commitlog" / f"{SIZE:020d}").write_bytes(bytes(SIZE))
    with pytest.raises(SegmentSizeMismatch, match=f"has {SIZE - 1} bytes instead of {SIZE} by mappedFileSizeCommitLog"):
        open_log(tmp_path)
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(SIZE))
    (tmp_path / "commitlog" / "notes.txt").touch()
    with pytest.raises(ForeignFile, match="move it out"):
        open_log(tmp_path)


def test_a_closed_log_takes_nothing(tmp_path):
    log = open_log(tmp_path)
    log.write_raw(0, b"x")
    log.close()
    with pytest.raises(StoreClosed):
        log.tail()
    with pytest.raises(StoreClosed):
        log.flush()
    log.close()


def test_the_used_part_of_a_disk_is_rounded_up_to_whole_percents(tmp_path):
    ratio = disk_used_ratio(tmp_path / "not" / "there")
    assert 0 < ratio <= 1 and round(ratio * 100) == pytest.approx(ratio * 100)


def resident_pages(path) -> int:
    """How many pages of a file the kernel caches."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        begin = ctypes.c_ubyte.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(len(mapped)), pages)
        del begin
    assert not failed
    return sum(page & 1 for page in pages)


def test_bytes_that_were_dropped_from_memory_are_the_same_and_only_flushed_ones_are_dropped(tmp_path):
    log = open_log(tmp_path)
    data = os.urandom(SIZE)
    log.write_raw(0, data[: SIZE // 2])
    log.drop_cached(0, SIZE)
    assert log.slice(0, SIZE // 2) == data[: SIZE // 2]
    log.flush()
    log.write_raw(SIZE // 2, data[SIZE // 2 :])
    path = log.segments[0].path
    before = resident_pages(path)
    log.drop_cached(0, 2 * SIZE)
    # A file system in memory caches everything, always.
    assert resident_pages(path) in (SIZE // 2 // mmap.PAGESIZE, before)
    assert log.slice(0, SIZE) == data
    log.close()
    log.drop_cached(0, SIZE)  # a thread may come late
