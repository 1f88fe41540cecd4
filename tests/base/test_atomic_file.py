"""A replaced file holds the old content or the new one, whatever step fails."""

import errno
import os
import stat
from types import SimpleNamespace

import pytest

from twinlog.base import atomic_file
from twinlog.base.atomic_file import keep_backup, replace_file, replacing
from twinlog.base.safe_files import read_file


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


STEPS = ("open", "fchmod", "write", "fsync", "link", "replace .bak", "replace", "fsync of the directory")


class Stopped(Exception):
    """What a test raises in the place of a failing disk or a killed process."""


def fail_step(monkeypatch, number):
    """Let the step of that number fail; returns the list of the steps that were made before it."""
    made = []

    def watch(name, real):
        def call(*args, **options):
            if len(made) == number:
                raise Stopped(name)
            made.append(name)
            return real(*args, **options)

        return call

    for name in ("fchmod", "fsync", "link", "replace"):
        monkeypatch.setattr(os, name, watch(name, getattr(os, name)))
    monkeypatch.setattr(atomic_file, "open_file", watch("open", atomic_file.open_file))
    return made


@pytest.mark.parametrize("number", range(len(STEPS) - 1), ids=[step for step in STEPS if step != "write"])
def test_a_step_that_fails_leaves_the_old_content_or_the_new(tmp_path, monkeypatch, number):
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    with monkeypatch.context() as failing:
        made = fail_step(failing, number)
        with pytest.raises(Stopped):
            replace_file(path, [b"n", b"ew"], keep_old=keep_backup)
    is_renamed = made.count("replace") == 2
    assert read_file(path) == (b"new" if is_renamed else b"old")
    assert not (tmp_path / "topics.json.tmp").exists()
    replace_file(path, [b"newer"], keep_old=keep_backup)  # what the failed one left does not stop the next
    assert read_file(path) == b"newer"
    assert read_file(tmp_path / "topics.json.bak") == (b"new" if is_renamed else b"old")
    assert sorted(os.listdir(tmp_path)) == ["topics.json", "topics.json.bak"]


def test_the_steps_are_made_in_an_order_that_survives_a_crash(tmp_path, monkeypatch):
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    made = fail_step(monkeypatch, 100)
    replace_file(path, [b"new"], keep_old=keep_backup)
    assert made == ["open", "fchmod", "fsync", "link", "replace", "replace", "fsync"]


def test_a_block_that_raises_changes_nothing(tmp_path):
    path = tmp_path / "table.parquet"
    with pytest.raises(Stopped), replacing(path, None, temporary=tmp_path / ".table") as out:
        out.write(b"half of it")
        raise Stopped
    assert not list(tmp_path.iterdir())


def test_without_modes_the_umask_decides_and_nothing_of_the_old_file_stays(tmp_path):
    path = tmp_path / "team" / "commit.json"
    old = os.umask(0o002)
    try:
        replace_file(path, [b"old"], None)
        path.chmod(0o600)
        replace_file(path, [b"new"], None, temporary=path.with_name("commit.json.new"))
    finally:
        os.umask(old)
    assert (mode_of(path), mode_of(path.parent)) == (0o664, 0o775)


def test_the_temporary_file_of_a_killed_process_is_not_in_the_way(tmp_path):
    path = tmp_path / "topics.json"
    (tmp_path / "topics.json.tmp").write_bytes(b"half of somethi")
    replace_file(path, [b"new"])
    assert [one.name for one in tmp_path.iterdir()] == ["topics.json"]


def test_a_replaced_file_leaves_the_targets_of_links_alone(tmp_path):
    path, victim = tmp_path / "topics.json", tmp_path / "victim"
    victim.write_bytes(b"precious")
    path.write_bytes(b"old")
    for suffix in ("tmp", "bak", "bak.tmp"):
        path.with_name(f"topics.json.{suffix}").symlink_to(victim)
    replace_file(path, [b"n", b"ew"], keep_old=keep_backup)
    assert victim.read_bytes() == b"precious"
    assert read_file(path) == b"new"
    assert read_file(tmp_path / "topics.json.bak") == b"old"
    assert sorted(os.listdir(tmp_path)) == ["topics.json", "topics.json.bak", "victim"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EACCES], ids=errno.errorcode.get)
def test_an_owner_that_cannot_be_given_does_not_stop_a_save(tmp_path, monkeypatch, code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    monkeypatch.setattr(atomic_file, "_stat_file", as_of_another_user(atomic_file._stat_file))
    monkeypatch.setattr(os, "fchown", fail)
    replace_file(path, [b"new"])
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o640)


def test_a_disk_that_fails_while_the_owner_is_set_stops_the_save(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(atomic_file, "_stat_file", as_of_another_user(atomic_file._stat_file))
    monkeypatch.setattr(os, "fchown", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        replace_file(path, [b"new"])
    assert path.read_bytes() == b"old"


def as_of_another_user(real):
    def found(path):
        one = real(path)
        return one and SimpleNamespace(
            st_mode=one.st_mode, st_size=one.st_size, st_uid=one.st_uid + 1, st_gid=one.st_gid
        )

    return found


def test_the_owner_is_not_set_where_it_is_right_already(tmp_path, monkeypatch):
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fchown", lambda *_: pytest.fail("not needed"))
    replace_file(path, [b"new"])
    assert path.read_bytes() == b"new"


def test_a_file_system_without_hard_links_keeps_a_copy(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(1, "Operation not permitted")

    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    monkeypatch.setattr(os, "link", fail)
    replace_file(path, [b"new"], keep_old=keep_backup)
    assert read_file(tmp_path / "topics.json.bak") == b"old"
    assert mode_of(tmp_path / "topics.json.bak") == 0o640
