"""Links that appear in a store while it is open, and links that an operator may have."""

import logging
import os

import pytest
from tests.store.store_at import SEGMENT, bodies, draft, fill, kill, open_store

from twinlog.store.cut_backup import BACKUP_DIRECTORY
from twinlog.store.errors import NotClosed, StoreUnusable
from twinlog.store.log.append import PutStatus
from twinlog.store.log.segment import segment_name


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"


def test_a_checkpoint_that_became_a_link_is_not_written(tmp_path, victim):
    store = open_store(tmp_path)
    fill(store, 3)
    (tmp_path / "store" / "checkpoint").symlink_to(victim)
    with pytest.raises(NotClosed, match="checkpoint is a symbolic link"):
        store.close()
    assert (tmp_path / "store" / "abort").exists()


def test_a_segment_is_not_made_in_the_place_of_a_link(tmp_path, victim):
    with open_store(tmp_path) as store:
        for number in (1, 2, 3):
            (tmp_path / "store" / "commitlog").mkdir(exist_ok=True)
            (tmp_path / "store" / "commitlog" / segment_name(number * SEGMENT)).symlink_to(victim)
        statuses = [store.append(draft(number)).status for number in range(200)]
        assert {*statuses} == {PutStatus.PUT_OK, PutStatus.CREATE_SEGMENT_FAILED}
        assert statuses == sorted(statuses, key=lambda status: status is not PutStatus.PUT_OK)


def test_a_queue_is_not_written_into_the_target_of_a_link(tmp_path, victim):
    with open_store(tmp_path) as store:
        queue = tmp_path / "store" / "consumequeue" / "TopicA" / "0" / segment_name(0)
        queue.parent.mkdir(parents=True)
        queue.symlink_to(victim)
        fill(store, 3)
        with pytest.raises(OSError, match=f"{queue} is a symbolic link"):
            store.flush_queues()
        assert store.queues_failed  # sends are refused
        queue.unlink()
        store.flush_queues()
        assert len(bodies(store)) == 2


def test_damaged_bytes_are_not_kept_in_the_target_of_a_link(tmp_path, victim):
    store = open_store(tmp_path)
    places = fill(store, 3)
    store.flush()
    kill(store)
    begin, end = places[1].physical_offset, places[2].physical_offset
    with open(tmp_path / "store" / "commitlog" / segment_name(0), "r+b") as log:
        log.seek(begin + 20)
        log.write(b"\xff" * 40)
    (tmp_path / "store" / "quarantine").mkdir()
    kept = tmp_path / "store" / "quarantine" / f"{begin:020d}-{end:020d}.bytes"
    kept.symlink_to(victim)
    with pytest.raises(StoreUnusable, match=f"{kept} is a symbolic link"):
        open_store(tmp_path)
    kept.unlink()
    with open_store(tmp_path) as store:
        assert [one.saved_as for one in store.report.damages] == [str(kept)]


def test_a_log_that_is_set_aside_is_private(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 3)
        store.cut_tail(0, 1)
        modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "store" / BACKUP_DIRECTORY).rglob("*")}
    assert {*modes.values()} == {0o700, 0o600}


def test_old_segments_may_be_links_in_a_directory_that_is_only_read(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 200)
        expected = bodies(store)
    log, disk, links = tmp_path / "store" / "commitlog", tmp_path / "disk", tmp_path / "links"
    disk.mkdir()
    links.mkdir()
    (log / segment_name(0)).rename(disk / segment_name(0))
    (links / segment_name(0)).symlink_to(disk / segment_name(0))
    with open_store(tmp_path, settings={"read_only_dirs_given": str(links)}) as store:
        assert bodies(store) == expected
        assert not store.commit_log.segments[0].writable


@pytest.mark.parametrize(("mode", "warned"), [(0o700, False), (0o755, False), (0o775, False), (0o777, True)])
def test_a_store_that_everybody_may_change_is_opened_with_a_warning(tmp_path, caplog, mode, warned):
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(mode)
    with caplog.at_level(logging.WARNING), open_store(tmp_path):
        pass
    assert ("other users could change this store" in caplog.text) == warned


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_store_in_another_users_directory_is_opened_with_a_warning(tmp_path, caplog):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with caplog.at_level(logging.WARNING), open_store(tmp_path / "theirs"):
        pass
    assert f"{tmp_path}/theirs belongs to user 65534" in caplog.text
