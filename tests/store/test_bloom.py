import json

import pytest
from tests.store import golden

from twinlog.store.bloom import BloomFilter, FilterBitmapDispatcher, has_bits, set_bits
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queue_table import QueueTable

JAVA = json.loads((golden.VECTORS / "bloom-filter.json").read_text())["filters"]


@pytest.mark.parametrize("java", JAVA, ids=lambda java: f"{java['errorRate']}-{java['expected']}")
def test_bits_are_where_java_puts_them(java):
    bloom = BloomFilter(java["errorRate"], java["expected"])
    assert (bloom.k, bloom.m) == (java["k"], java["m"])
    for key, positions in java["positions"].items():
        assert list(bloom.positions(key)) == positions
    bitmap = bloom.empty_bitmap()
    for key in list(java["positions"])[:4]:
        set_bits(bitmap, bloom.positions(key))
        assert has_bits(bitmap, bloom.positions(key))
    assert bitmap.hex() == java["bitmapOfFirstFour"]


def test_the_default_filter_is_that_of_a_broker_without_settings():
    assert (BloomFilter().k, BloomFilter().m) == (3, 112)
    assert BloomFilter().is_valid([1, 2, 3], 112)
    assert not BloomFilter().is_valid([1, 2], 112)
    assert not BloomFilter().is_valid(None, 112)


@pytest.mark.parametrize(("rate", "expected"), [(0, 32), (100, 32), (20, 0)])
def test_impossible_parameters_are_refused(rate, expected):
    with pytest.raises(ValueError, match=r"BloomFilter|UseFilter"):
        BloomFilter(rate, expected)


def request(properties: bytes, number=0, topic="TopicA") -> DispatchRequest:
    return DispatchRequest(topic, 0, number * 100, 100, 5, 7, number, properties_bytes=properties)


def test_the_bitmap_says_which_groups_a_message_passes_and_is_kept_in_the_extension(tmp_path):
    bloom = BloomFilter()
    bits = {group: bloom.positions(f"{group}#TopicA") for group in ("g1", "g2", "g3")}

    def broken(properties):
        raise ZeroDivisionError

    filters = {
        "TopicA": [
            (lambda properties: properties.get("color") == "red", bits["g1"]),
            (lambda properties: properties.get("color") == "blue", bits["g2"]),
            (broken, bits["g3"]),
        ]
    }
    table = QueueTable(tmp_path, ext_enabled=True)
    batch = [request(b"color\x01red\x02"), request(b"", 1), request(b"color\x01red\x02", 0, "Other")]
    for dispatcher in (FilterBitmapDispatcher(bloom, lambda topic: filters.get(topic, ())), table):
        dispatcher.dispatch(batch)
        dispatcher.flush()
    red, none = table.get("TopicA", 0).units(0, 2)
    assert red.tags_code == none.tags_code == 5
    assert has_bits(red.ext.bitmap, bits["g1"])
    assert not has_bits(red.ext.bitmap, bits["g2"])
    assert not has_bits(none.ext.bitmap, bits["g1"])
    assert has_bits(none.ext.bitmap, bits["g3"])  # a filter that fails says nothing, so the message may pass
    assert batch[2].bitmap is None
    assert table.get("Other", 0).unit(0).ext.bitmap == b""
