"""A record is written over damaged bytes of an open log, or nothing is; what was damaged is kept."""

import json
import os

import pytest
from tests.store.store_at import SEGMENT, bodies, fill, open_store, write_log

from twinlog.store.file_ops import FileOps
from twinlog.store.recovery.record_mend import MendFailed, SegmentFile
from twinlog.wire.message import decode_messages


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 100)
    with open_store(tmp_path) as store:  # its records are old now
        yield store


def damage(store, path, number=7):
    """Flip a bit of a record; returns (place, record, damaged)."""
    place, size, _ = store.unit("TopicA", number % 2, number // 2)
    record = bytes(store.record_at(place))
    damaged = bytearray(record)
    damaged[100] ^= 4
    write_log(path, place, damaged)
    assert len(record) == size
    return place, record, bytes(damaged)


def mend(store, place, record, damaged, ops=None):
    with SegmentFile.at(store.commit_log, place, ops or FileOps(), writable=True) as file:
        file.mend(store.root, place, record, damaged)


def read_all(store, queue_id):
    result = store.read("TopicA", queue_id, 0, log=store.log_loaded())
    return [one.body for buffer in result.buffers for one in decode_messages(buffer)]


def test_a_mended_record_is_served_and_what_was_damaged_is_in_the_quarantine(store, tmp_path):
    before, noted = read_all(store, 1), []
    store.on_damaged_record.append(noted.append)
    place, record, damaged = damage(store, tmp_path)
    assert read_all(store, 1) == before[:3] + before[4:] + [b"body 65"], "it is left out, and not served"
    assert noted == [place]
    mend(store, place, record, damaged)
    assert read_all(store, 1) == before == bodies(store, queue_id=1)[:32]
    name = store.root / "quarantine" / f"{place:020d}-{place + len(record):020d}"
    assert name.with_suffix(".bytes").read_bytes() == damaged
    assert json.loads(name.with_suffix(".json").read_text())["action"] == "restored from its twin"


def test_bytes_that_are_not_the_damaged_ones_are_not_overwritten(store, tmp_path):
    place, record, damaged = damage(store, tmp_path)
    for other in (record, damaged[:-1], bytes(len(damaged))):
        with pytest.raises(MendFailed, match="have changed meanwhile"):
            mend(store, place, record, other)
    assert bytes(store.record_at(place)) == damaged and not (store.root / "quarantine").exists()


class Breaks(FileOps):
    """Fails the n-th write or flush of the log, or writes something else."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        self.log = None

    def open(self, path, flags):
        found = super().open(path, flags)
        if path.parent.name == "commitlog":
            self.log = found
        return found

    def write(self, descriptor, data, at):
        if descriptor == self.log and self.what == "no write":
            raise OSError(5, "bad sector")
        if descriptor == self.log and self.what == "half":
            os.pwrite(descriptor, bytes(data)[:50], at)
            raise OSError(28, "no space")
        wrong = descriptor == self.log and self.what == "other bytes"
        super().write(descriptor, bytes(len(data)) if wrong else data, at)

    def flush(self, descriptor):
        if descriptor == self.log and self.what == "no flush":
            raise OSError(5, "bad sector")
        super().flush(descriptor)


@pytest.mark.parametrize("what", ["no write", "half", "no flush", "other bytes"])
def test_a_disk_that_does_not_take_it_is_reported_and_damaged_bytes_are_not_served(store, tmp_path, what):
    before = read_all(store, 1)
    place, record, damaged = damage(store, tmp_path)
    with pytest.raises((MendFailed, OSError)):
        mend(store, place, record, damaged, Breaks(what))
    found = read_all(store, 1)
    assert found[:3] == before[:3] and all(one in (*before, b"body 65") for one in found)
    note = next((store.root / "quarantine").glob("*.json"))
    assert json.loads(note.read_text())["action"] == "being restored from its twin"
    now = bytes(store.commit_log.slice(place, len(record)))
    if now != record:
        mend(store, place, record, now)
    assert read_all(store, 1) == before


def test_the_file_stays_the_same_when_the_log_gets_another_one(store, tmp_path):
    """A replica that starts over has a new file of the same name: an old record must not get there."""
    place, record, damaged = damage(store, tmp_path)
    file = SegmentFile.at(store.commit_log, place, writable=True)
    store.change_role("SLAVE")
    store.set_log_aside(1)
    store.append_raw(0, bytes(8))
    with file:
        file.mend(store.root, place, record, damaged)
    assert not any(store.commit_log.segments[0].view(8, SEGMENT - 8))


def test_a_place_outside_of_the_log_has_no_file(store):
    assert SegmentFile.at(store.commit_log, 10 * SEGMENT) is None
    assert SegmentFile.at(store.commit_log, -1) is None
