import json

import pytest
from tests.store import golden

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.file_pool import FilePool
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX, ConsumeQueueExt, ExtUnit
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.queues.read import ReadLimits, read_queue

JAVA = json.loads((golden.VECTORS / "store-classes.json").read_text())["ext"]


@pytest.fixture
def ext(tmp_path):
    return ConsumeQueueExt(FilePool(), str(tmp_path), JAVA["fileBytes"])


def put_all(ext):
    return [ext.put(unit["tagsCode"], unit["storeTime"], bytes.fromhex(unit["bitmap"])) for unit in JAVA["units"]]


def test_units_have_the_addresses_and_bytes_of_java(ext, tmp_path):
    assert put_all(ext) == [unit["address"] for unit in JAVA["units"]]
    ext.write()
    assert {path.name: path.read_bytes().hex() for path in tmp_path.iterdir()} == JAVA["files"]


def test_java_files_are_read_after_recovery(ext, tmp_path):
    for name, data in JAVA["files"].items():
        (tmp_path / name).write_bytes(bytes.fromhex(data))
    ext.recover()
    assert ext.end == 200 + 20 + 34 + 23
    for unit in JAVA["units"]:
        assert ext.get(unit["address"]) == ExtUnit(unit["tagsCode"], unit["storeTime"], bytes.fromhex(unit["bitmap"]))
    assert ext.get(JAVA["units"][-1]["address"] + 100) is None


def test_cutting_and_writing_again_gives_the_same_files(ext, tmp_path):
    addresses = put_all(ext)
    ext.write()
    for last in range(len(addresses) - 1, -1, -1):
        ext.cut_after(addresses[last])
        assert ext.get(addresses[last]) is not None
        assert all(ext.get(address) is None for address in addresses[last + 1 :])
        for unit, address in zip(JAVA["units"][last + 1 :], addresses[last + 1 :], strict=True):
            assert ext.put(unit["tagsCode"], unit["storeTime"], bytes.fromhex(unit["bitmap"])) == address
        ext.write()
        assert {path.name: path.read_bytes().hex() for path in tmp_path.iterdir()} == JAVA["files"]


def test_old_files_go_with_the_messages_they_describe(ext, tmp_path):
    addresses = put_all(ext)
    ext.write()
    assert ext.delete_files_below(addresses[4]) == 1
    assert ext.get(addresses[0]) is None
    assert ext.get(addresses[4]) is not None
    assert ext.delete_files_below(12345) == 0  # a tags code, not an address


def test_a_bitmap_too_large_for_a_unit_leaves_the_tags_code_in_place(ext):
    assert ext.put(77, 0, bytes(32767)) == 77 > ADDRESS_MAX


class NoLog:
    log_start, log_end = 0, 1000

    def slice(self, physical_offset, size):
        return memoryview(bytes(size))

    window = slice

    def need(self, offsets, sizes):
        pass


def test_a_message_whose_filter_data_is_gone_is_never_filtered_out(tmp_path):
    table = QueueTable(tmp_path, ext_enabled=True)
    table.dispatch([DispatchRequest("T", 0, number * 100, 100, 5, 7, number) for number in range(3)])
    table.close()
    seen = []

    def accept(tags_code, ext):
        seen.append((tags_code, ext))
        return tags_code is None

    plain = QueueTable(tmp_path)  # the extension was switched off since
    plain.load(clean=True)
    result = read_queue(plain.get("T", 0), NoLog(), 0, count_max=9, limits=ReadLimits(), accept=accept)
    assert result.count == 3
    assert seen == [(None, None)] * 3
    assert plain.get("T", 0).unit(0).tags_code is None
    table.load(clean=True)
    assert table.get("T", 0).unit(2).ext == ExtUnit(5, 7, b"")


def test_the_bitmap_of_a_dispatched_message_is_what_its_unit_shows(tmp_path):
    table = QueueTable(tmp_path, ext_enabled=True)
    table.dispatch([DispatchRequest("T", 0, 0, 100, 5, 7, 0, bitmap=b"\x81\x00")])
    assert table.get("T", 0).unit(0).ext == ExtUnit(5, 7, b"\x81\x00")
    table.flush()
    assert table.get("T", 0).unit(0).ext == ExtUnit(5, 7, b"\x81\x00")
