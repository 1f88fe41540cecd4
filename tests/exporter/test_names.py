"""Rows from facts, without a broker."""

from __future__ import annotations

import pytest

from twinlog.client import BadArgument
from twinlog.exporter.exporter_names import cluster_rows
from twinlog.exporter.facts import BrokerFacts, BrokerPlace
from twinlog.exporter.families import Families, Metric
from twinlog.exporter.patterns import TopicPatterns
from twinlog.exporter.runtime_names import number, runtime_rows
from twinlog.observe.groups.group_progress import GroupMember, Members, Progress, QueueProgress

TABLE = {
    "putTps": "1.5 2.5 3.5 ",
    "getTransferedTps": "4 5 6",  # as 4.x writes it
    "commitLogMaxOffset": "1000",
    "remainHowManyDataToFlush": "2.0 KiB",
    "commitLogDirCapacity": "Total : 10.0 GiB, Free : 2.5 GiB.",
    "putMessageDistributeTime": "[<=0ms]:9 [0~10ms]:1 [10s~]:0 ",
    "commitLogDiskRatio": "what?",
}


def facts(name: str = "broker-a", **more) -> BrokerFacts:
    return BrokerFacts(BrokerPlace("C", name, 0, f"{name}:10911"), 0, TABLE, **more)


def test_a_runtime_table_becomes_numbers_in_bytes_and_what_is_no_number_is_left_out():
    seen = {metric.name.removeprefix("rocketmq_brokeruntime_"): value for metric, _, value in runtime_rows(facts())}
    assert seen == {
        "put_tps10": 1.5,
        "put_tps60": 2.5,
        "put_tps600": 3.5,
        "gettransfered_tps10": 4,
        "gettransfered_tps60": 5,
        "gettransfered_tps600": 6,
        "commitlog_maxoffset": 1000,
        "remain_howmanydata_toflush": 2048,
        "commitlogdir_capacity_total": 10 * 1024**3,
        "commitlogdir_capacity_free": 2.5 * 1024**3,
        "pmdt_0ms": 9,
        "pmdt_0to10ms": 1,
        "pmdt_10stomore": 0,
    }


@pytest.mark.parametrize(
    ("text", "value"), [("1e3", 1000), ("3 B", 3), ("", None), (None, None), ("1.5 MiB", 1572864), ("nan", None)]
)
def test_numbers_of_the_table(text, value):
    assert number(text) == value


def test_the_backlog_of_a_group_is_summed_over_brokers_and_a_client_is_shown_once():
    def on(name: str, high: int) -> BrokerFacts:
        queue = QueueProgress(0, high, 2, 3, 0)
        members = Members((GroupMember("c1", "1.2.3.4:5", "JAVA", 479),), "CONSUME_PASSIVELY", "CLUSTERING")
        return facts(name, progress=(Progress("G", "T", (queue,), 0.0),), members={"G": members})

    found = {(metric.name, *labels): value for metric, labels, value in summed(cluster_rows([on("a", 5), on("b", 9)]))}
    assert found["rocketmq_group_diff", "G", "T", "1", "1"] == 3 + 7
    assert found["rocketmq_group_count", "1.2.3.4:5", "c1", "G"] == 1


def summed(rows):
    families = Families()
    families.add(rows)
    return [(metric, labels, value) for metric, found in families._families.items() for labels, value in found.items()]


def test_the_text_quotes_what_a_label_may_contain():
    families = Families()
    families.add([(Metric("m", "help", ("topic",)), ('a"b\\c\nd',), 1)])
    assert rb'm{topic="a\"b\\c\nd"} 1.0' in families.text()


def test_patterns_include_exclude_and_refuse_an_empty_one():
    patterns = TopicPatterns(["Orders*,Pay?", "!*-test"])
    wanted = [topic for topic in ("Orders", "Orders-test", "Pay1", "Pay12", "x") if patterns.wants(topic)]
    assert wanted == ["Orders", "Pay1"]
    assert patterns.wants("%RETRY%g") and patterns.wants("%DLQ%g"), "they belong to groups"
    assert TopicPatterns(["!x"]).wants("y") and not TopicPatterns(["!x"]).wants("x")
    with pytest.raises(BadArgument, match="empty pattern"):
        TopicPatterns(["Orders,,"])
