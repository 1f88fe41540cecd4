"""The real mqadmin asks a Twinlog pair about its replication, and a Java pair: both print the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.replica_pair import Pair, until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]
RATES = r"-?\d+\.\d+(E-?\d+)?"


@pytest.fixture(scope="module", params=["ASYNC_MASTER"])
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    """A Java pair and ours, each with the same messages."""
    home = tmp_path_factory.mktemp("pairs")
    with (
        Pair.running(home / "java", "java-5.5.0", "java-5.5.0", request.param) as java,
        Pair.running(home / "twinlog", "twinlog", "twinlog", request.param) as ours,
    ):
        for pair in (java, ours):
            pair.joined()
            pair.send(20)
            pair.logs_equal()
        yield [java, ours]


def printed(pair: Pair, *words: str) -> list[str]:
    """What mqadmin prints, without what differs from run to run."""
    admin = JavaRocketmq("5.5.0")
    words = tuple(word.format(master=pair.master.address, replica=pair.replica.address) for word in words)
    text = admin.mqadmin(*words, "-n", pair.names.address)
    for pattern, name in (
        (rf"{pair.master.port}\b", "<master>"),
        (rf"{pair.master.port + 1}\b", "<ha>"),
        (rf"{pair.replica.port}\b", "<replica>"),
        (r"127\.0\.0\.1:\d+", "<peer>"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "<time>"),
        (r"\d{14,17}", "<time>"),
        (RATES, "<n>"),
        (r"\bV\d+_\d+_\d+\b", "<version>"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_ha_status_of_a_master_and_of_a_replica(pairs: list[Pair]):
    for address in ("{master}", "{replica}"):
        java, ours = (numbers_out(printed(pair, "haStatus", "-b", address)) for pair in pairs)
        assert ours == java


def numbers_out(lines: list[str]) -> list[str]:
    """Offsets differ, as a Java client's messages are some bytes longer; what they are called does not."""
    return [re.sub(r"\b\d+\b", "<n>", line) for line in lines]


def test_cluster_list_shows_master_and_replica(pairs: list[Pair]):
    for pair in pairs:
        until(lambda pair=pair: len(printed(pair, "clusterList")) == 3, "both are registered")
    java, ours = (printed(pair, "clusterList") for pair in pairs)
    assert [line.split(" ")[:4] for line in ours] == [line.split(" ")[:4] for line in java]
    assert [line.split(" ")[2] for line in ours[1:]] == ["0", "1"]


def test_broker_status_of_a_replica_names_the_same_values(pairs: list[Pair]):
    java, ours = (printed(pair, "brokerStatus", "-b", "{replica}") for pair in pairs)

    def names(lines: list[str]) -> set[str]:
        return {re.sub(r"_/\S+", "_<store>", line.split(":")[0].strip()) for line in lines}

    # 5.5.0 has dropped brokerVersion, 4.x and 5.3 tools print it; the other one is our own.
    assert names(ours) ^ names(java) == {"brokerVersion", "twinlogVersion"}
