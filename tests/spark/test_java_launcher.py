import os
import tempfile
from pathlib import Path

import pytest

from twinlog.spark.java_launcher import NoJava, write_launcher

NOBODY = 65534
JAVA = Path("/opt/java")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A temporary directory for all users, as /tmp is, and a home beside it."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    return directory


def test_the_launcher_lies_in_a_directory_of_this_user_alone(shared):
    home = write_launcher(JAVA)
    base = shared / f"twinlog-java-{os.geteuid()}"
    assert home == base / "opt-java"
    assert [one.stat().st_mode & 0o777 for one in (base, home, home / "bin", home / "bin" / "java")] == [0o700] * 4


@as_root
def test_another_users_directory_is_not_used_even_with_our_own_inside(shared, tmp_path):
    base = shared / f"twinlog-java-{os.geteuid()}"
    planted = base / "opt-java" / "bin" / "java"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\nid\n")
    os.chown(base, NOBODY, NOBODY)  # who may rename what is ours in there, and put another in its place
    home = write_launcher(JAVA)
    assert home == tmp_path / "home" / ".cache" / "twinlog" / "java" / "opt-java"
    assert planted.read_text() == "#!/bin/sh\nid\n"


@as_root
def test_another_users_link_is_not_followed(shared, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    base = shared / f"twinlog-java-{os.geteuid()}"
    base.symlink_to(tmp_path / "elsewhere")
    os.chown(base, NOBODY, NOBODY, follow_symlinks=False)
    assert write_launcher(JAVA).is_relative_to(tmp_path / "home")


@as_root
def test_a_home_that_is_not_safe_either_leaves_a_new_directory(shared, tmp_path):
    for path in (shared / f"twinlog-java-{os.geteuid()}", tmp_path / "home" / ".cache"):
        path.mkdir()
        os.chown(path, NOBODY, NOBODY)
    home = write_launcher(JAVA)
    assert home.parent.parent == shared
    assert home.parent.stat().st_mode & 0o777 == 0o700


def test_where_nothing_is_safe_the_error_names_why(shared, tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(NoJava, match=rf"others may write to {tmp_path} \(mode 0777\).*set TMPDIR"):
        write_launcher(JAVA)
    assert not list(shared.rglob("java"))


def test_a_shared_directory_without_sticky_bit_is_named_with_what_helps(shared):
    """As /tmp in some containers; a private directory below it would not help, as its name could be taken."""
    shared.chmod(0o777)
    blocked = shared.parent / "home" / ".cache"
    blocked.write_text("")  # a home that cannot be written
    with pytest.raises(NoJava) as raised:
        write_launcher(JAVA)
    assert str(raised.value).count(f"others may write to {shared} (mode 0777)") == 1
    for step in ("chmod +t", "set TMPDIR to a private directory that is not below", "or set JAVA_HOME"):
        assert step in str(raised.value)


@as_root
def test_a_launcher_of_another_user_is_replaced(shared):
    launcher = write_launcher(JAVA) / "bin" / "java"
    text = launcher.read_text()
    os.chown(launcher, NOBODY, NOBODY)
    assert write_launcher(JAVA) / "bin" / "java" == launcher
    assert (launcher.stat().st_uid, launcher.read_text()) == (0, text)


def test_a_launcher_of_our_own_that_lost_its_mode_can_be_run_again(shared):
    launcher = write_launcher(JAVA) / "bin" / "java"
    launcher.write_text("of an older version")
    launcher.chmod(0o600)
    assert write_launcher(JAVA) / "bin" / "java" == launcher
    assert launcher.stat().st_mode & 0o777 == 0o700
