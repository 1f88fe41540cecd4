import pytest
from tests.store.queues.test_read import Store

from twinlog.store.queues.time_search import search_offset, store_time_at


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def search(store, time, topic, *, upper=False):
    return search_offset(store.queues.get(topic, 0), store.log, time, upper=upper)


@pytest.mark.parametrize("topic", ["SimpleCQ", "BatchCQ"])
def test_offsets_are_found_by_time(store, topic):
    assert search(store, 5, topic) == 0
    for time in (10, 20, 20, 30):
        store.send(time=time, topic=topic)
    lower = [search(store, time, topic) for time in (5, 10, 11, 20, 21, 30, 31)]
    upper = [search(store, time, topic, upper=True) for time in (5, 10, 11, 20, 21, 30, 31)]
    assert lower == [0, 0, 1, 1, 3, 3, 4]
    assert upper == [0, 0, 0, 2, 2, 3, 3]


def test_the_store_time_of_a_message_is_read_from_its_record(store):
    store.send(time=77)
    store.send(time=88, sys_flag=0x10)  # born on an IPv6 host: the field lies 12 bytes further
    times = [store_time_at(store.queues.get("SimpleCQ", 0), store.log, offset) for offset in (0, 1, 2)]
    assert times == [77, 88, -1]
    assert store_time_at(None, store.log, 0) == -1
