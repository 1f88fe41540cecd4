"""Names and labels of metrics: a real Java broker's endpoint, Twinlog's, and the exporter in front of either.

What differs stands here with its reason; a name or a label that is missing and not listed fails.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.interop.clusters import implementation
from tests.interop.metrics_workload import GROUP, TOPIC, scrape, use_everything
from tests.interop.processes import free_port
from tests.interop.python_client import until

from twinlog.client import Admin
from twinlog.exporter.broker_round import RoundLimits
from twinlog.exporter.collect_service import CollectService

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

POP = "Twinlog has no pop consumption"
BY_TOPIC = "Twinlog counts these for the whole broker"
NOT_IN_TWINLOG = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": POP,
    "rocketmq_pop_checkpoint_buffer_size": POP,
    "rocketmq_pop_offset_buffer_size": POP,
    "rocketmq_pop_revive_lag_milliseconds": POP,
    "rocketmq_pop_revive_latency_milliseconds": POP,
    "rocketmq_processor_watermark": "no thread pools: a request is handled when it arrives",
    "rocketmq_topic_create_execution_time_milliseconds": "rocketmq_rpc_latency has update_and_create_topic",
    "rocketmq_delay_message_latency_seconds": "rocketmq_timer_dequeue_latency shows how late timers are",
    "rocketmq_finish_message_latency_milliseconds": "rocketmq_rpc_latency has end_transaction",
    "rocketmq_timer_dequeue_lag": "Java: messages between two threads of its timer; Twinlog has none in between",
    "rocketmq_timer_enqueue_latency_milliseconds": "timer messages are read as they are stored",
    "rocketmq_timer_message_snapshot": "the slots of Java's timer wheel; Twinlog has a table",
    "target_info": "of the library that Java uses",
}
LABELS_NOT_IN_TWINLOG = {
    "rocketmq_commit_messages_total": ({"topic"}, BY_TOPIC),
    "rocketmq_rollback_messages_total": ({"topic"}, BY_TOPIC),
    "rocketmq_half_messages": ({"topic"}, BY_TOPIC),
    "rocketmq_timer_enqueue_total": ({"topic"}, BY_TOPIC),
    "rocketmq_timer_dequeue_total": ({"topic"}, BY_TOPIC),
    "rocketmq_timing_messages": ({"topic"}, BY_TOPIC),
    "rocketmq_send_to_dlq_messages_total": ({"topic"}, "taken from the dead-letter queue, which is the group's"),
}
NOT_IN_EXPORTER = {
    "rocketmq_throughput_in_total": "a broker tells bytes only as rates: rocketmq_producer_message_size",
    "rocketmq_throughput_out_total": "likewise: rocketmq_consumer_message_size",
    "rocketmq_message_size": "a broker does not report sizes of messages",
    "rocketmq_rpc_latency_milliseconds": "a broker does not report times of requests",
    "rocketmq_consumer_queueing_latency_milliseconds": "a broker does not report when messages not pulled were stored",
    "rocketmq_commit_messages_total": "a broker does not report",
    "rocketmq_rollback_messages_total": "a broker does not report",
    "rocketmq_half_messages": "a broker does not report",
    "rocketmq_timer_enqueue_total": "a broker does not report",
    "rocketmq_timer_dequeue_total": "a broker does not report",
    "rocketmq_timing_messages": "a broker does not report",
    "rocketmq_timer_dequeue_latency_milliseconds": "a broker does not report",
}
OF_THE_LIBRARY = {"otel_scope_name", "otel_scope_version", "le"}


def names_and_labels(text: str) -> dict[str, set[str]]:
    """Metric names of a scrape, a histogram's without its parts, with all labels that occur."""
    histograms = set(re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE))
    found: dict[str, set[str]] = defaultdict(set)
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        bare = re.sub(r"_(bucket|sum|count)$", "", name)
        found[bare if bare in histograms else name] |= set(re.findall(r'(\w+)="', labels)) - OF_THE_LIBRARY
    return found


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Of Java and of Twinlog after the same work: the broker's own endpoint, and the exporter."""
    return {
        name: asyncio.run(scraped(name, tmp_path_factory.mktemp(name.replace(".", "-"))))
        for name in ("java-5.5.0", "twinlog")
    }


async def scraped(name: str, home: Path) -> tuple[str, str]:
    maker, port = implementation(name), free_port()
    java = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port), "metricsPromExporterHost": "127.0.0.1"}
    conf = java if name.startswith("java") else {"metricsPort": str(port)}
    with maker.name_server(home / "ns") as names, maker.broker(home / "b", names.address, **conf) as broker:
        service = CollectService(Admin(names.address), RoundLimits(), interval_s=0.5)
        exporting = asyncio.create_task(service.run())
        own = ""

        async def look() -> bool:
            nonlocal own
            own = await asyncio.to_thread(scrape, port)
            text = service.exposition().decode()
            return "\nrocketmq_consumer_lag_messages{" in own and "\nrocketmq_client_consume_rt{" in text

        try:
            await use_everything(names.address, until_seen=lambda: until(look))
        finally:
            exporting.cancel()
            await asyncio.gather(exporting, return_exceptions=True)
        assert broker.address
        return own, service.exposition().decode()


def test_twinlogs_endpoint_has_javas_names_and_labels(scrapes: dict[str, tuple[str, str]]):
    java, ours = (names_and_labels(scrapes[name][0]) for name in ("java-5.5.0", "twinlog"))
    assert {name for name in java if name not in ours} == set(NOT_IN_TWINLOG)
    lacking = {name: java[name] - ours[name] for name in java if name in ours and java[name] - ours[name]}
    assert lacking == {name: labels for name, (labels, _) in LABELS_NOT_IN_TWINLOG.items()}
    more = {name: ours[name] - java[name] for name in java if name in ours and ours[name] - java[name]}
    assert not more


@pytest.mark.parametrize("name", ["java-5.5.0", "twinlog"])
def test_the_exporter_shows_the_same_names_in_front_of_either(scrapes: dict[str, tuple[str, str]], name: str):
    ours = names_and_labels(scrapes["twinlog"][0])
    own, exported = names_and_labels(scrapes[name][0]), names_and_labels(scrapes[name][1])
    native = {one for one in ours if one in own and re.match(r"rocketmq_(?!ha_|slave_sync_)", one)}
    assert {one for one in native if one not in exported} == set(NOT_IN_EXPORTER)
    assert not {one: ours[one] ^ exported[one] for one in native if one in exported and ours[one] != exported[one]}
    for one in ("rocketmq_producer_offset", "rocketmq_consumer_offset", "rocketmq_group_diff", "rocketmq_broker_tps"):
        assert one in exported
    assert f'topic="{TOPIC}"' in scrapes[name][1]


def test_the_exporters_numbers_are_the_same_for_java_and_twinlog(scrapes: dict[str, tuple[str, str]]):
    def number(text: str, name: str, *labels: str) -> float:
        lines = [
            line for line in text.splitlines() if line.startswith(name + "{") and all(one in line for one in labels)
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    topic, group = f'topic="{TOPIC}"', f'group="{GROUP}"'
    for name, labels in {
        "rocketmq_producer_offset": [topic],
        "rocketmq_messages_in_total": [topic],
        "rocketmq_consumer_offset": [topic, group],
        "rocketmq_group_diff": [topic, group],
        "rocketmq_topic_dlq_offset": [group],
        "rocketmq_consumer_lag_messages": [topic, f'consumer_group="{GROUP}"'],
    }.items():
        java, ours = (number(scrapes[one][1], name, *labels) for one in ("java-5.5.0", "twinlog"))
        assert java == ours, name
    assert number(scrapes["twinlog"][1], "rocketmq_producer_offset", topic) > 9
