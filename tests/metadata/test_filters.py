"""Registered property filters outlive their consumers for a while, and a restart."""

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.filters import BloomData, ConsumerFilter, FilterTable

FILTER = ConsumerFilter("G", "T", "a > 1", "SQL92", 100, 0, BloomData((1, 5, 9), 16), 7)


def test_a_filter_is_alive_until_its_dead_time_passes_its_birth():
    assert not FILTER.is_dead
    assert ConsumerFilter("G", "T", "a > 1", born_time=100, dead_time=100).is_dead


def test_filters_survive_a_restart_in_javas_format(tmp_path):
    file = FileWithBackup(tmp_path / "consumerFilter.json")
    before = FilterTable(file, 1)
    before.put(FILTER)
    before.save()
    after = FilterTable(file, 2)
    after.load()
    assert after.get("T", "G") == FILTER
    assert after.of_topic("T") == {"G": FILTER}
    assert not after.dirty


def test_javas_own_file_is_read(tmp_path):
    file = FileWithBackup(tmp_path / "consumerFilter.json")
    file.path.write_text(
        '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":{"bitNum":16,"bitPos":[1,5,9]},"bornTime":100,'
        '"clientVersion":7,"consumerGroup":"G","dead":false,"deadTime":0,"expression":"a > 1","expressionType":"SQL92",'
        '"topic":"T"}},"topic":"T"}}}'
    )
    table = FilterTable(file, 1)
    table.load()
    assert table.get("T", "G") == FILTER


def test_only_filters_that_died_long_ago_are_cleaned():
    table = FilterTable(None, 1)
    table.put(FILTER)
    table.put(ConsumerFilter("OLD", "T", "a > 1", born_time=100, dead_time=200))
    table.put(ConsumerFilter("RECENT", "T", "a > 1", born_time=100, dead_time=900))
    assert table.clean(dead_before_ms=500) == 1
    assert set(table.of_topic("T")) == {"G", "RECENT"}
    assert [row.topic for row in table.of_group("G")] == ["T"]


def test_a_topic_without_filters_is_gone():
    table = FilterTable(None, 1)
    table.put(FILTER)
    table.remove("T", "G")
    assert dict(table.rows) == {}
