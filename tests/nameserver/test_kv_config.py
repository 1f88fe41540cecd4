import asyncio
import json
import os
import threading

import pytest

from twinlog.nameserver import kv_config
from twinlog.nameserver.errors import NameServerError, TableFull
from twinlog.nameserver.kv_config import KvConfig, table_length


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


async def test_values_survive_a_restart(path):
    kv = KvConfig(path)
    await kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    await kv.put("ORDER_TOPIC_CONFIG", "U", "broker-a:8")
    await kv.delete("ORDER_TOPIC_CONFIG", "U")
    assert KvConfig(path).namespace("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4"}
    assert json.loads(path.read_text())["configTable"] == {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}


async def test_a_namespace_stays_when_its_last_key_goes(path):
    kv = KvConfig(path)
    await kv.put("N", "k", "v")
    await kv.delete("N", "k")
    assert (kv.namespace("N"), kv.namespace("never"), kv.get("N", "k")) == ({}, None, None)


async def test_deleting_what_is_not_there_writes_nothing(path):
    await KvConfig(path).delete("N", "k")
    assert not path.exists()


def test_the_java_name_server_s_file_is_read(path):
    path.parent.mkdir()
    path.write_text('{"configTable":{"N":{"k":"v"}}}')
    assert KvConfig(path).get("N", "k") == "v"


@pytest.mark.parametrize("broken", ["", "{", '{"configTable":[]}'])
async def test_a_broken_file_is_set_aside_and_its_backup_used(path, broken):
    kv = KvConfig(path)
    await kv.put("N", "k", "1")
    await kv.put("N", "k", "2")
    path.write_text(broken)
    assert KvConfig(path).get("N", "k") == "1"
    assert path.with_name("kvConfig.json.broken").read_text() == broken
    assert KvConfig(path).get("N", "k") == "1"


@pytest.mark.parametrize(("by_hand", "expected"), [(True, "9"), (False, "1")])
async def test_a_change_by_hand_is_used_and_a_damaged_digit_is_not(path, by_hand, expected):
    kv = KvConfig(path)
    await kv.put("N", "k", "1")
    await kv.put("N", "k", "2")
    before = path.stat()
    path.write_text(path.read_text().replace('"2"', '"9"'))
    if not by_hand:  # a disk leaves the time of the save
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert KvConfig(path).get("N", "k") == expected
    assert path.with_name("kvConfig.json.broken").exists() == (not by_hand)


def test_a_broken_file_without_a_backup_refuses_to_start(path):
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(NameServerError, match=r"kvConfig.json: .*repair the file, or move it away"):
        KvConfig(path)
    assert path.read_text() == "{"


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_failed_write_changes_nothing(path, monkeypatch, step):
    kv = KvConfig(path)
    await kv.put("N", "k", "old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space"):
            await kv.put("N", "k", "new")
    assert kv.get("N", "k") == "old"
    assert KvConfig(path).get("N", "k") == "old"


async def test_changes_that_come_together_share_their_writes_and_are_on_disk_when_answered(path, monkeypatch):
    writes, replace = [], kv_config.replace_file

    def counted(*args, **options):
        writes.append(threading.current_thread())
        replace(*args, **options)

    monkeypatch.setattr(kv_config, "replace_file", counted)
    kv = KvConfig(path)

    async def put(number: int) -> None:
        await kv.put("N", f"k{number}", "v" * 1000)
        assert f"k{number}" in json.loads(path.read_text())["configTable"]["N"]

    await asyncio.gather(*(put(number) for number in range(120)))
    assert len(writes) <= 2
    assert threading.main_thread() not in writes
    assert len(kv.namespace("N")) == 120


async def test_a_failed_write_fails_all_changes_it_had_and_no_others(path, monkeypatch):
    kv, results = KvConfig(path), []
    await kv.put("N", "k", "old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(kv_config, "replace_file", fail)
        results = await asyncio.gather(*(kv.put("N", f"k{n}", "new") for n in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [OSError] * 3
    assert kv.namespace("N") == {"k": "old"}
    await kv.put("N", "later", "v")
    assert KvConfig(path).namespace("N") == {"k": "old", "later": "v"}


async def test_a_table_that_is_full_takes_nothing_that_makes_it_longer(path):
    kv = KvConfig(path)
    await kv.put("N", "k", "v" * 100, length_max=200)
    with pytest.raises(TableFull, match=r"the KV configs would have 2\d\d characters"):
        await kv.put("N", "l", "v" * 100, length_max=200)
    await kv.put("N", "k", "w" * 90, length_max=10)  # shorter is better, whatever the limit is now
    await kv.delete("N", "k")
    await kv.put("N", "l", "v" * 100, length_max=200)
    assert table_length(kv._table) == kv._length
