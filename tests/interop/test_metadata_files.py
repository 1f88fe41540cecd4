"""The metadata files we write, read by RocketMQ's own classes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.interop.toolchain import VERSIONS, java_command

from twinlog.metadata.filters import BloomData, ConsumerFilter
from twinlog.metadata.tables import open_tables
from twinlog.wire.bodies import SimpleSubscriptionData, SubscriptionGroupConfig, TopicConfig
from twinlog.wire.java_json.fastjson import loads

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def write_tables(directory: Path) -> None:
    tables = open_tables(directory, 1_000)
    tables.topics.put("T", TopicConfig(topic_name="T", read_queue_nums=8, attributes={"message.type": "FIFO"}), 2_000)
    tables.groups.put("G", SubscriptionGroupConfig(group_name="G", retry_max_times=3), 2_000)
    subscriptions = [SimpleSubscriptionData(topic="T", expression="a || b")]
    tables.groups.put("H", SubscriptionGroupConfig(group_name="H", subscription_data_set=subscriptions), 2_000)
    tables.groups.set_readable("G", "T", False, 2_000)
    tables.offsets.follows_master = True  # then the file holds a member of ours, which Java must overlook
    tables.offsets.commit("G", "T", 0, 5, 2_000)
    tables.offsets.commit("G", "T", 7, 9_000_000_000, 2_000)
    tables.delay_offsets.update(3, 7, 2_000)
    tables.filters.put(ConsumerFilter("G", "T", "a = 'é'", "SQL92", 100, 0, BloomData((1, 5, 9), 112), 7))
    tables.save()


def read_by_java(version: str, directory: Path) -> dict[str, Any]:
    command = java_command(version, "MetadataRead", str(directory), options=[f"-Duser.home={directory}"])
    done = subprocess.run(command, capture_output=True, timeout=240)
    lines = [line.decode() for line in done.stdout.splitlines() if line.startswith(b"METADATA ")]
    assert len(lines) == 5, done.stdout[-2_000:] + done.stderr[-2_000:]
    return {name: loads(text) for name, text in (line.split(" ", 2)[1:] for line in lines)}


@pytest.mark.parametrize("version", VERSIONS)
def test_java_reads_every_file_we_write(version, tmp_path):
    write_tables(tmp_path)
    found = read_by_java(version, tmp_path)
    topic = found["topics.json"]["topicConfigTable"]["T"]
    assert (topic["topicName"], topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == ("T", 8, 16, 6)
    assert found["topics.json"]["dataVersion"]["counter"] == 1
    groups = found["subscriptionGroup.json"]["subscriptionGroupTable"]
    assert (groups["G"]["retryMaxTimes"], groups["H"]["retryMaxTimes"]) == (3, 16)
    assert found["consumerOffset.json"]["offsetTable"] == {"T@G": {"0": 5, "7": 9_000_000_000}}
    assert found["delayOffset.json"]["offsetTable"] == {"3": 7}
    [row] = found["consumerFilter.json"]["filterDataByTopic"]["T"]["groupFilterData"].values()
    assert (row["expression"], row["bloomFilterData"]["bitPos"]) == ("a = 'é'", [1, 5, 9])
    if version.startswith("5."):
        assert topic["attributes"] == {"message.type": "FIFO"}
        assert found["subscriptionGroup.json"]["forbiddenTable"] == {"G": {"T": 4}}
        assert groups["H"]["subscriptionDataSet"][0]["expression"] == "a || b"
