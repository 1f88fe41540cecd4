import os
from pathlib import Path

import pytest

from twinlog.base.trusted_path import why_untrusted

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


def test_a_directory_of_our_own_is_trusted_through_links_of_our_own(tmp_path):
    inner = tmp_path / "real" / "inner"
    inner.mkdir(parents=True, mode=0o700)
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to(Path("..") / tmp_path.name / "real")
    for path in (inner, tmp_path / "absolute" / "inner", tmp_path / "relative" / "inner"):
        assert why_untrusted(path) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_the_last_directory_must_be_closed_to_others(tmp_path, mode):
    tmp_path.chmod(mode)
    assert why_untrusted(tmp_path) == f"others may write to {tmp_path} (mode {mode:04o})"


def test_a_group_may_be_trusted_and_all_users_are_not(tmp_path):
    for mode, problem in ((0o770, None), (0o777, f"others may write to {tmp_path} (mode 0777)")):
        tmp_path.chmod(mode)
        assert why_untrusted(tmp_path, trust_groups=True) == problem


def test_others_may_write_above_only_where_they_cannot_rename(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o700)
    tmp_path.chmod(0o1777)
    assert why_untrusted(inner) is None
    tmp_path.chmod(0o777)
    assert why_untrusted(inner) == f"others may write to {tmp_path} (mode 0777)"


@as_root
def test_another_users_directory_anywhere_in_the_path_is_named(tmp_path):
    inner = tmp_path / "theirs" / "ours"
    inner.mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    assert why_untrusted(inner) == f"{tmp_path}/theirs belongs to user {NOBODY}"


@as_root
def test_another_users_link_is_named_wherever_it_leads(tmp_path):
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    assert why_untrusted(tmp_path / "link") == f"{tmp_path}/link belongs to user {NOBODY}"


def test_links_that_lead_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        why_untrusted(tmp_path / "a")


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        why_untrusted(tmp_path / "missing")
