"""Filters of consumer groups: registered by heartbeats, dead when the group leaves, judged by bitmap and by record."""

import pytest

from twinlog.broker.pulls.filters.bitmap_dispatcher import BitmapDispatcher
from twinlog.broker.pulls.filters.bloom import BloomFilter
from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
from twinlog.metadata.filters import FilterTable
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queues.consume_queue_ext import ExtUnit
from twinlog.wire.bodies import SubscriptionData
from twinlog.wire.message import Message, encode_message
from twinlog.wire.properties import encode_properties
from twinlog.wire.record_layout import record_properties


def sql(expression: str, version: int = 1, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version)


def tags(topic: str = "T", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string="*", sub_version=version)


@pytest.fixture
def filters() -> ConsumerFilters:
    return ConsumerFilters(FilterTable(None, 0), BloomFilter(20, 32), 0)


def message(**properties: str) -> DispatchRequest:
    return DispatchRequest("T", 0, 0, 100, 0, 5_000, 0, properties_bytes=encode_properties(properties))


def test_a_heartbeat_registers_property_filters_only(filters):
    filters.register("G", [sql("a > 1"), tags("U")], 100)
    assert filters.table.get("T", "G").expression == "a > 1"
    assert filters.table.get("U", "G") is None


def test_a_newer_expression_replaces_and_an_older_one_does_not(filters):
    filters.register("G", [sql("a > 1", 5)], 100)
    filters.register("G", [sql("a > 2", 4)], 200)
    assert filters.table.get("T", "G").expression == "a > 1"
    filters.register("G", [sql("a > 3", 6)], 300)
    row = filters.table.get("T", "G")
    assert (row.expression, row.born_time) == ("a > 3", 300)


def test_the_same_expression_with_a_newer_version_keeps_its_birth(filters):
    filters.register("G", [sql("a > 1", 5)], 100)
    filters.register("G", [sql("a > 1", 6)], 900)
    row = filters.table.get("T", "G")
    assert (row.born_time, row.client_version) == (100, 6)


def test_a_new_expression_that_does_not_compile_removes_the_old_one(filters):
    filters.register("G", [sql("a > 1", 5)], 100)
    filters.register("G", [sql("a >", 6)], 200)
    assert filters.table.get("T", "G") is None


def test_a_filter_dies_with_its_group_or_its_topic_and_revives(filters):
    filters.register("G", [sql("a > 1")], 100)
    filters.unregister("G", 200)
    assert filters.table.get("T", "G").is_dead
    filters.register("G", [sql("a > 1")], 300)
    assert not filters.table.get("T", "G").is_dead
    filters.register("G", [tags("OTHER")], 400)
    assert filters.table.get("T", "G").dead_time == 400
    assert filters.clean(now_ms=10_000, expiry_ms=9_601) == 0
    assert filters.clean(now_ms=10_000, expiry_ms=9_599) == 1


def test_after_a_restart_filters_are_there_and_no_consumer_is_online(filters):
    filters.register("G", [sql("a > 1")], 100)
    again = ConsumerFilters(filters.table, BloomFilter(20, 32), 50_000)
    assert again.table.get("T", "G").dead_time == 20_000
    assert again.of_group("G", "T").wakes(message(a="2"))


def test_a_bloom_filter_of_another_size_makes_saved_filters_useless(filters):
    filters.register("G", [sql("a > 1")], 100)
    assert not ConsumerFilters(filters.table, BloomFilter(20, 64), 200).table.rows


def test_a_message_carries_the_bits_of_the_filters_that_match_it(filters):
    filters.register("G", [sql("a > 1")], 100)
    filters.register("H", [sql("a > 9")], 100)
    arrived = message(a="5")
    BitmapDispatcher(filters).dispatch([arrived])
    unit = ExtUnit(0, arrived.store_timestamp, arrived.bitmap)
    assert filters.of_group("G", "T").accept(None, unit)
    assert not filters.of_group("H", "T").accept(None, unit)


def test_a_bitmap_does_not_exclude_a_filter_that_is_newer(filters):
    filters.register("H", [sql("a > 9")], 100)
    wanted = filters.of_group("H", "T")
    assert wanted.accept(None, ExtUnit(0, 100, bytes(14)))
    assert wanted.accept(None, ExtUnit(0, 5_000, bytes(3)))
    assert wanted.accept(None, None)
    assert not wanted.accept(None, ExtUnit(0, 5_000, bytes(14)))


def test_a_topic_without_filters_gets_no_bitmap(filters):
    filters.register("G", [sql("a > 1", topic="OTHER")], 100)
    arrived = message(a="5")
    BitmapDispatcher(filters).dispatch([arrived])
    assert arrived.bitmap is None


def test_a_changed_filter_changes_the_bitmaps_that_follow(filters):
    dispatcher, first, second = BitmapDispatcher(filters), message(a="5"), message(a="5")
    filters.register("G", [sql("a > 1", 1)], 100)
    dispatcher.dispatch([first])
    filters.register("G", [sql("a > 7", 2)], 200)
    dispatcher.dispatch([second])
    assert any(first.bitmap)
    assert not any(second.bitmap)


def test_a_pull_with_an_expression_that_does_not_compile_gets_everything_as_in_java(filters):
    wanted = filters.of_request("G", "T", "a >")
    assert (wanted.accept, wanted.accept_record, wanted.wakes) == (None, None, None)


@pytest.mark.parametrize("topic", ["T", "T" * 200])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_stored_record_is_judged_by_its_properties(filters, topic, host):
    record = encode_message(
        Message(
            topic=topic,
            body=b"x" * 300,
            properties={"a": "5", "KEYS": "k"},
            born_host=(host, 1),
            store_host=(host, 2),
            version=2 if len(topic) > 127 else 1,
            sys_flag=0x30 if ":" in host else 0,
        )
    )
    assert bytes(record_properties(memoryview(record))) == encode_properties({"a": "5", "KEYS": "k"})
    assert filters.of_request("G", topic, "a = 5").accept_record(memoryview(record))
    assert not filters.of_request("G", topic, "a = 6").accept_record(memoryview(record))
