"""A store directory changes hands: one implementation writes it, stops or is killed, and another one goes on with it.

The writer's acknowledged messages are all read back through the next broker, queue by queue and by key: plain,
batched, compressed, delayed (one of them still waiting), transactional, and with a topic name that needs the second
record version. Files are tiny, so that logs, queues and indexes consist of several of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.interop.clusters import implementation
from tests.interop.java_rocketmq import JavaRocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TINY_FILES = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "400",
    "messageDelayLevel": "1s 15s 1m",
}
LONG_GROUP = "0123456789" * 15  # as in LongNames.java
TAKE_OVERS = [
    ("twinlog", "java-5.5.0"),
    ("twinlog", "java-4.9.7"),
    ("java-5.5.0", "twinlog"),
    ("java-4.9.7", "twinlog"),
]


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize(("writer", "reader"), TAKE_OVERS, ids=lambda name: name)
def test_every_message_is_readable_after_the_store_changed_hands(writer: str, reader: str, ending: str, tmp_path: Path):
    client = JavaRocketmq("5.5.0")
    know_long_group(tmp_path / "broker/store/config")
    with implementation("twinlog").name_server(tmp_path / "names") as names:
        with implementation(writer).broker(tmp_path / "broker", names.address, **TINY_FILES) as broker:
            wrote, _ = lines(client.run("StoreFill", names.address, broker.address))
            if "java-4.9.7" not in (writer, reader):  # it knows only the first record version
                wrote += lines(client.run("LongNames", names.address, broker.address))[0]
            if ending == "clean":
                broker.stop()
        assert len(list((tmp_path / "broker/store/commitlog").iterdir())) > 2
        assert ((tmp_path / "broker/store/abort").exists()) == (ending == "killed")

        with implementation(reader).broker(tmp_path / "broker", names.address, **TINY_FILES) as broker:
            topics = sorted({message["topic"] for message in wrote})
            pending = str(sum(message["topic"] == "T_delay" for message in wrote))
            read, end = lines(client.run("StoreRead", names.address, broker.address, pending, *topics))

    found = {place(message): message for message in read}
    missing = [message for message in wrote if place(message) not in found]
    assert not missing
    # Delayed messages may come twice after a kill: their progress is written down from time to time.
    twice = {"T_delay"} if ending == "killed" else set()
    assert count(read, besides=twice) == count(wrote, besides=twice)
    assert [content(found[place(message)]) for message in wrote] == [content(message) for message in wrote]
    not_by_key = [message for message in read if message["msgId"] not in message["byKey"]]
    assert not not_by_key
    assert end["appended at"] == end["before"] == 150
    assert end["last"] == "one more"
    if ending == "clean":
        assert end["group offset"] == 77


def know_long_group(config: Path) -> None:
    """A group whose retry topic has more than 127 characters. Brokers refuse to create it, but honour an old one."""
    config.mkdir(parents=True)
    group = {"groupName": LONG_GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "subscriptionGroupTable": {LONG_GROUP: group}}
    (config / "subscriptionGroup.json").write_text(json.dumps(table))


def count(messages: list[dict[str, Any]], *, besides: set[str]) -> int:
    return sum(message["topic"] not in besides for message in messages)


def place(message: dict[str, Any]) -> tuple[str, int, int | str]:
    if message["topic"] == "T_delay":  # the one that comes twice moves the next
        return ("T_delay", 0, message["msgId"])
    return (message["topic"], message["queueId"], message["queueOffset"])


def content(message: dict[str, Any]) -> tuple[str, str, str]:
    # Java: a 4.9.7 broker stores the id of the batch with each of its messages.
    message_id = "" if message["topic"] == "T_batch" else message["msgId"]
    return (message_id, message["body"], message["keys"])


def lines(printed: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages a program printed, and its last line."""
    parsed = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return parsed[:-1], parsed[-1]
