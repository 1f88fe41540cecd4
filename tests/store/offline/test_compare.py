"""Two logs are twins, or the first byte that differs is named with its record."""

import shutil

import pytest
from tests.store.store_at import SEGMENT, fill, open_store, write_log

from twinlog.store.offline.compare import compare_logs
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.scan.log_parts import part_at, records_end


@pytest.fixture
def twins(tmp_path):
    """Two stores with the same 300 messages over several segments, and where these are."""
    with open_store(tmp_path / "a") as store:
        places = fill(store, 300)
        assert places[-1].physical_offset > 2 * SEGMENT
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a", tmp_path / "b", places


def compare(one, other):
    with StoreFiles(one / "store") as first, StoreFiles(other / "store") as second:
        read = []
        found = compare_logs(first.commit_log, second.commit_log, read.append)
        return found, sum(read)


def test_twins_are_equal_and_every_byte_is_read_once(twins):
    one, other, places = twins
    found, read = compare(one, other)
    assert found.is_equal and found.ends == (places[-1].end, places[-1].end)
    assert read == places[-1].end


def test_a_shorter_twin_is_equal_up_to_its_end(twins):
    one, other, places = twins
    with open_store(one) as store:
        more = fill(store, 50, start=300)
    found, read = compare(one, other)
    assert found.is_equal and found.ends == (more[-1].end, places[-1].end) and read == places[-1].end


def test_a_twin_that_began_later_is_compared_from_there(twins):
    one, other, _ = twins
    (other / "store" / "commitlog" / f"{0:020d}").unlink()
    found, read = compare(one, other)
    assert found.is_equal and found.begin == SEGMENT and read == found.ends[0] - SEGMENT


@pytest.mark.parametrize("number", [0, 150, 299])
def test_the_first_different_byte_is_named_with_its_record(twins, number):
    one, other, places = twins
    at = places[number].physical_offset + 90
    write_log(other, at, b"\xff")
    found, _ = compare(one, other)
    assert not found.is_equal and found.differs_at == at
    expected = f"record TopicA/{number % 2}/{number // 2} at {places[number].physical_offset} to {places[number].end}"
    assert [str(place) for place in found.places] == [expected, expected]


def test_logs_without_a_common_byte_are_not_called_equal(twins):
    one, other, _ = twins
    for file in sorted((other / "store" / "commitlog").iterdir())[:-1]:
        file.unlink()
    for file in sorted((one / "store" / "commitlog").iterdir())[1:]:
        file.unlink()
    assert not compare(one, other)[0].is_equal


def test_every_byte_of_the_log_has_its_place(twins):
    one, _, places = twins
    with StoreFiles(one / "store") as store:
        log = store.commit_log
        assert records_end(log) == places[-1].end
        for place in (places[0], places[77], places[-1]):
            for at in (place.physical_offset, place.physical_offset + 1, place.end - 1):
                found = part_at(log, at)
                assert found is not None and (found.begin, found.end) == (place.physical_offset, place.end)
        blank = part_at(log, SEGMENT - 1)
        assert blank is not None and blank.end == SEGMENT and "blank" in blank.what
        assert part_at(log, 1 << 40) is None
