"""Requests made before the clock starts, so that the load generator only copies bytes."""

from __future__ import annotations

from twinlog.wire.command import Command, encode_command
from twinlog.wire.properties import encode_properties

FRAMES_PER_CONNECTION = 2048  # different keys, so that both indexes work as in real life
BORN_MS = 1_700_000_000_000


def send_frames(
    topic: str, queue_id: int, body: bytes, *, connection: int, count: int = FRAMES_PER_CONNECTION, first: int = 0
) -> list:
    """What a Java 5.x producer sends, member for member."""
    frames = []
    for number in range(first, first + count):
        unique = f"7F000001{connection:04X}1B2C3D4E{number:08X}{number & 0xFFFF:04X}"
        properties = encode_properties({"UNIQ_KEY": unique, "WAIT": "true", "TAGS": "TagA"}).decode()
        fields = {
            "a": "BENCH_PG",
            "b": topic,
            "c": "TBW102",
            "d": "8",
            "e": str(queue_id),
            "f": "0",
            "g": str(BORN_MS + number),
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "broker-a",
        }
        frames.append(encode_command(Command(310, opaque=number, fields=fields, body=body)))
    return frames


def pull_frame(topic: str, queue_id: int, queue_offset: int, count: int, *, held_ms: int = 0) -> bytes:
    """A pull that brings its subscription along, as the pull consumer does; one that may wait, with `held_ms`."""
    fields = {
        "consumerGroup": "BENCH_CG",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(count),
        "sysFlag": "6" if held_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(held_ms or 20_000),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        "maxMsgBytes": "2147483647",
        "bname": "broker-a",
    }
    return encode_command(Command(11, opaque=queue_offset & 0x7FFFFFFF, fields=fields))


def topic_frame(topic: str, queues: int) -> bytes:
    """UPDATE_AND_CREATE_TOPIC."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return encode_command(Command(17, opaque=1, fields=fields))


def max_offset_frame(topic: str, queue_id: int) -> bytes:
    """GET_MAX_OFFSET."""
    return encode_command(Command(30, opaque=1, fields={"topic": topic, "queueId": str(queue_id)}))
