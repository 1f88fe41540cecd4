"""A metadata file is whole at every moment, whatever stops the writer."""

import json
import os

import pytest

from twinlog.metadata.errors import BrokenFile
from twinlog.metadata.file_with_backup import FileWithBackup


def load(file: FileWithBackup):
    return file.load(json.loads)


def text(path) -> str:
    return path.read_text()


def test_both_files_missing_means_defaults(tmp_path):
    assert load(FileWithBackup(tmp_path / "config" / "topics.json")) is None


def test_a_save_is_read_back_and_the_content_before_it_is_the_backup(tmp_path):
    file = FileWithBackup(tmp_path / "config" / "topics.json")
    file.save([b'{"a":', b"1}"])
    file.save([b'{"a":2}'])
    assert load(file) == {"a": 2}
    assert text(tmp_path / "config" / "topics.json.bak") == '{"a":1}'


@pytest.mark.parametrize("content", [b"", b"  \n", b"\0\0\0", b'{"a":', b"not json"])
def test_a_blank_or_broken_file_falls_back_on_its_backup(tmp_path, content):
    file = FileWithBackup(tmp_path / "topics.json")
    file.path.write_bytes(content)
    (tmp_path / "topics.json.bak").write_text('{"a":1}')
    assert load(file) == {"a": 1}
    assert file.from_backup


def test_a_broken_file_is_set_aside_by_the_next_save_and_its_backup_is_kept(tmp_path):
    file = FileWithBackup(tmp_path / "topics.json")
    file.path.write_text("torn")
    (tmp_path / "topics.json.bak").write_text('{"a":1}')
    load(file)
    file.save([b'{"a":2}'])
    assert text(tmp_path / "topics.json.broken-1") == "torn"
    assert text(tmp_path / "topics.json.bak") == '{"a":1}'
    assert load(file) == {"a": 2}


def test_a_save_that_fails_after_the_broken_file_was_set_aside_does_not_set_the_next_content_aside(
    tmp_path, monkeypatch
):
    path = tmp_path / "topics.json"
    path.write_text("torn")
    path.with_name("topics.json.bak").write_text('{"a":0}')
    file = FileWithBackup(path)
    assert load(file) == {"a": 0}
    with monkeypatch.context() as patched:
        patched.setattr("twinlog.base.atomic_file.sync_directory", fail)
        with pytest.raises(OSError, match="directory"):
            file.save([b'{"a":1}'])
    file.save([b'{"a":2}'])
    assert (load(file), text(path.with_name("topics.json.bak"))) == ({"a": 2}, '{"a":1}')
    assert not path.with_name("topics.json.broken-2").exists()


def fail(directory) -> None:
    raise OSError(f"the directory {directory} cannot be synced")


def test_a_broken_file_without_backup_starts_from_defaults_but_is_not_lost(tmp_path):
    file = FileWithBackup(tmp_path / "topics.json")
    file.path.write_text("torn")
    (tmp_path / "topics.json.broken-1").write_text("torn before")
    assert load(file) is None
    assert "Expecting value" in (file.problem or "")
    file.save([b"{}"])
    assert text(tmp_path / "topics.json.broken-2") == "torn"


def test_two_broken_files_are_an_error_that_names_both(tmp_path):
    file = FileWithBackup(tmp_path / "topics.json")
    file.path.write_text("torn")
    (tmp_path / "topics.json.bak").write_text("torn too")
    with pytest.raises(BrokenFile, match=r"topics\.json cannot be read .*topics\.json\.bak .*: repair one"):
        load(file)
    assert text(file.path) == "torn"


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_a_save_that_fails_half_way_leaves_the_old_content_readable(tmp_path, monkeypatch, step):
    file = FileWithBackup(tmp_path / "topics.json")
    file.save([b'{"a":1}'])
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    if step == "link":  # a file system without hard links is copied instead
        file.save([b'{"a":2}'])
        assert load(file) == {"a": 2}
    else:
        with pytest.raises(OSError, match="No space"):
            file.save([b'{"a":2}'])
        assert load(file) == {"a": 1}
    assert calls
