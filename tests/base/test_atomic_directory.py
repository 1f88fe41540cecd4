"""A directory is replaced in one step, or as well as the file system allows."""

import os

import pytest

from twinlog.base import atomic_directory
from twinlog.base.atomic_directory import CannotExchange, exchange_directories, remove_exchanged, replace_directory


def make(directory, content):
    directory.mkdir()
    (directory / content).touch()
    return directory


def test_two_directories_are_exchanged_in_one_step(tmp_path):
    one, two = make(tmp_path / "one", "a"), make(tmp_path / "two", "b")
    exchange_directories(one, two)
    assert (os.listdir(one), os.listdir(two)) == (["b"], ["a"])
    with pytest.raises(FileNotFoundError):
        exchange_directories(one, tmp_path / "three")


def without_exchange(one, other):
    raise CannotExchange(one, "Invalid argument")


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_directory_takes_the_name_and_the_old_one_is_removed(tmp_path, monkeypatch, can_exchange, is_there):
    if not can_exchange:
        monkeypatch.setattr(atomic_directory, "exchange_directories", without_exchange)
    path, new = tmp_path / "map", make(tmp_path / "map.new", "new")
    if is_there:
        make(path, "old")
    replace_directory(path, new)
    assert os.listdir(tmp_path) == ["map"]
    assert os.listdir(path) == ["new"]


def test_the_names_are_durable_before_the_old_directory_is_removed(tmp_path, monkeypatch):
    path, new = make(tmp_path / "map", "old"), make(tmp_path / "map.new", "new")

    def fail(directory):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(atomic_directory, "sync_directory", fail)
    with pytest.raises(OSError, match="Input/output error"):
        replace_directory(path, new)
    assert (os.listdir(path), os.listdir(new)) == (["new"], ["old"])


def test_whoever_has_opened_a_directory_sees_all_its_files_although_it_is_exchanged(tmp_path):
    one, two = make(tmp_path / "one", "a"), make(tmp_path / "two", "b")
    seen = []
    with os.scandir(one) as reader:  # opened, and not yet read
        exchange_directories(one, two)
        remove_exchanged(two, pause=lambda _seconds: seen.extend(entry.name for entry in reader))
    assert (seen, os.listdir(one), two.exists()) == (["a"], ["b"], False)


def test_an_error_names_the_file_system_and_the_reason(tmp_path):
    with pytest.raises(OSError, match=r"of .*one cannot exchange two directories \(Invalid argument\)$"):
        without_exchange(tmp_path / "one", tmp_path / "two")
