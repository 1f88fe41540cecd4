import os
import stat

import pytest

from twinlog.base import safe_files
from twinlog.base.atomic_file import keep_backup, replace_file
from twinlog.base.file_modes import Modes, check_directory_mode, check_file_mode
from twinlog.base.safe_files import UnsafeFile, make_directory, open_file

NOBODY = 65534
WRITE = os.O_WRONLY | os.O_CREAT
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request):
    old = os.umask(request.param)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("modes", [Modes(), Modes(0o640, 0o750), Modes(0o644, 0o755)], ids=str)
def test_new_names_get_their_modes_whatever_the_umask(tmp_path, modes):
    inner = tmp_path / "a" / "b"
    make_directory(inner, modes)
    os.close(open_file(inner / "file", WRITE, modes))
    replace_file(inner / "replaced", [b"x"], modes)
    assert [mode_of(one) for one in (inner.parent, inner)] == [modes.directory] * 2
    assert [mode_of(inner / name) for name in ("file", "replaced")] == [modes.file] * 2


def test_what_exists_keeps_its_mode(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    make_directory(tmp_path)
    os.close(open_file(path, WRITE | os.O_TRUNC))
    assert (mode_of(path), mode_of(tmp_path), path.read_bytes()) == (0o644, 0o755, b"")
    replace_file(path, [b"new"], Modes(0o600), keep_old=keep_backup)
    assert (mode_of(path), path.read_bytes()) == (0o644, b"new")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, WRITE, WRITE | os.O_TRUNC, WRITE | os.O_EXCL], ids=str)
@pytest.mark.parametrize("target", ["exists", "dangles"])
def test_a_link_in_a_files_place_is_refused_and_its_target_untouched(tmp_path, flags, target):
    victim = tmp_path / "victim"
    if target == "exists":
        victim.write_bytes(b"precious")
    (tmp_path / "abort").symlink_to(victim)
    with pytest.raises(UnsafeFile, match=r"abort is a symbolic link.*remove the link"):
        open_file(tmp_path / "abort", flags)
    assert (victim.read_bytes() if victim.exists() else None) == (b"precious" if target == "exists" else None)


def arrives_late(monkeypatch, path, put):
    """Whoever looks for `path` finds nothing, and a moment later somebody else has put something there."""
    real = os.open

    def look(name, flags, *mode):
        try:
            return real(name, flags, *mode)
        finally:
            if name == path and not flags & os.O_CREAT and not os.path.lexists(path):
                put()

    monkeypatch.setattr(os, "open", look)


@pytest.mark.parametrize("flags", [os.O_RDWR | os.O_CREAT, WRITE | os.O_TRUNC], ids=str)
def test_a_file_that_another_process_makes_meanwhile_is_opened(tmp_path, monkeypatch, flags):
    path = tmp_path / "lock"
    arrives_late(monkeypatch, path, path.touch)
    descriptor = open_file(path, flags)
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    os.close(descriptor)


def test_who_asks_for_a_new_file_is_refused_one_that_another_process_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        open_file(tmp_path / "file", WRITE | os.O_EXCL)


def test_a_link_that_is_planted_meanwhile_is_refused(tmp_path, monkeypatch):
    path, victim = tmp_path / "lock", tmp_path / "victim"
    monkeypatch.setattr(safe_files, "refuse_link", once_blind(safe_files.refuse_link))
    arrives_late(monkeypatch, path, lambda: path.symlink_to(victim))
    with pytest.raises(UnsafeFile, match="lock is a symbolic link"):
        open_file(path, os.O_RDWR | os.O_CREAT)
    assert not victim.exists()


def once_blind(check):
    """`check`, which sees nothing the first time: the link is planted after it looked."""
    calls = []

    def look(path):
        calls.append(path)
        if len(calls) > 1:
            check(path)

    return look


def test_a_file_that_comes_and_goes_does_not_keep_the_caller_forever(tmp_path, monkeypatch):
    def always_too_late(_path, flags, *_mode):
        raise FileExistsError if flags & os.O_CREAT else FileNotFoundError

    monkeypatch.setattr(os, "open", always_too_late)
    with pytest.raises(FileExistsError):
        open_file(tmp_path / "lock", os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_a_pipe_in_a_files_place_is_refused_without_waiting(tmp_path, flags):
    os.mkfifo(tmp_path / "abort")
    with pytest.raises(UnsafeFile, match="abort is not a plain file"):
        open_file(tmp_path / "abort", flags)


def test_a_directory_may_be_a_link_of_our_own(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    make_directory(tmp_path / "store" / "commitlog")
    assert (tmp_path / "disk" / "commitlog").is_dir()


@as_root
def test_a_directory_behind_another_users_link_is_refused(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    os.chown(tmp_path / "store", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(UnsafeFile, match=rf"store belongs to user {NOBODY}.*chown -h"):
        make_directory(tmp_path / "store" / "commitlog")
    assert not list((tmp_path / "disk").iterdir())


def test_a_file_in_a_directorys_place_is_an_error(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(NotADirectoryError):
        make_directory(tmp_path / "store")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0600", None),
        ("640", None),
        ("rw", "is not a mode of three octal digits"),
        ("0888", "is not a mode"),
        ("0400", "would close the store to its own broker"),
        ("0666", "would let every user change the store"),
    ],
)
def test_a_mode_of_files_is_checked(text, problem):
    assert (check_file_mode(text) or "").startswith(problem or "")
    assert (check_file_mode(text) is None) == (problem is None)


def test_a_mode_of_directories_is_checked():
    assert check_directory_mode("0750") is None
    assert "close the store" in (check_directory_mode("0600") or "")
