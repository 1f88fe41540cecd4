import json
import os

import pytest

from twinlog.nameserver.errors import NameServerError
from twinlog.nameserver.kv_config import KvConfig


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def test_values_survive_a_restart(path):
    kv = KvConfig(path)
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    kv.put("ORDER_TOPIC_CONFIG", "U", "broker-a:8")
    kv.delete("ORDER_TOPIC_CONFIG", "U")
    assert KvConfig(path).namespace("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4"}
    assert json.loads(path.read_text()) == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}}


def test_a_namespace_stays_when_its_last_key_goes(path):
    kv = KvConfig(path)
    kv.put("N", "k", "v")
    kv.delete("N", "k")
    assert (kv.namespace("N"), kv.namespace("never"), kv.get("N", "k")) == ({}, None, None)


def test_deleting_what_is_not_there_writes_nothing(path):
    KvConfig(path).delete("N", "k")
    assert not path.exists()


def test_the_java_name_server_s_file_is_read(path):
    path.parent.mkdir()
    path.write_text('{"configTable":{"N":{"k":"v"}}}')
    assert KvConfig(path).get("N", "k") == "v"


@pytest.mark.parametrize("broken", ["", "{", '{"configTable":[]}'])
def test_a_broken_file_is_set_aside_and_its_backup_used(path, broken):
    kv = KvConfig(path)
    kv.put("N", "k", "1")
    kv.put("N", "k", "2")
    path.write_text(broken)
    assert KvConfig(path).get("N", "k") == "1"
    assert path.with_name("kvConfig.json.broken").read_text() == broken
    assert KvConfig(path).get("N", "k") == "1"


def test_a_broken_file_without_a_backup_refuses_to_start(path):
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(NameServerError, match=r"kvConfig.json: .*repair the file, or move it away"):
        KvConfig(path)
    assert path.read_text() == "{"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(path, monkeypatch, step):
    kv = KvConfig(path)
    kv.put("N", "k", "old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space"):
            kv.put("N", "k", "new")
    assert kv.get("N", "k") == "old"
    assert KvConfig(path).get("N", "k") == "old"
