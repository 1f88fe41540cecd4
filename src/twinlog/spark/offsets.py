"""Offsets as text: in the options of users, and in the checkpoint of a stream.

    {"Orders": {"broker-a": {"0": 23, "1": -2}}}      startingOffsets and the like; -2 earliest, -1 latest
    {"Orders": {"broker-a": [0, 1]}}                  assign
    {"Orders@broker-a@0": 23}                         a stream's offset: the NEXT message to read, keys sorted

Spark compares a stream's offsets as JSON text, so equal positions must give equal text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.wire.bodies import MessageQueue

EARLIEST, LATEST = -2, -1
Offsets = dict[MessageQueue, int]


def queue_text(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}@{queue.queue_id}"


def where(queue: MessageQueue, offset: int | None = None) -> str:
    """A queue, and an offset in it, as error messages name them."""
    text = f"topic {queue.topic} broker {queue.broker_name} queue {queue.queue_id}"
    return text if offset is None else f"{text} offset {offset}"


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> dict[str, int]:
    """Offsets as a checkpoint holds them."""
    return dict(sorted((queue_text(queue), int(offset)) for queue, offset in offsets.items()))


def decode_offsets(offsets: Mapping[str, int]) -> Offsets:
    """Offsets from a checkpoint, in the order of the queues."""
    found: Offsets = {}
    for text, offset in offsets.items():
        topic, _, rest = text.partition("@")
        broker_name, _, queue_id = rest.rpartition("@")
        if not topic or not broker_name or not queue_id.isdigit():
            raise SparkSourceError(
                f"{text!r} in the checkpoint is not topic@broker@queue: is it the checkpoint of another source?"
            )
        found[MessageQueue(topic, broker_name, int(queue_id))] = int(offset)
    return dict(sorted(found.items()))


def commit_waves(offsets: Mapping[MessageQueue, int]) -> list[Offsets]:
    """`offsets` of one group in parts that are committed one after the other; each part is sent at once.

    Java: the first commit for a topic and group creates their map without a lock. Of two first commits at the same
    time, one replaces the map of the other, and both are acknowledged. So one queue of each topic and broker is first.
    """
    first: dict[tuple[str, str], MessageQueue] = {}
    for queue in sorted(offsets):
        first.setdefault((queue.broker_name, queue.topic), queue)
    leading = set(first.values())
    waves = [
        {q: at for q, at in offsets.items() if q in leading},
        {q: at for q, at in offsets.items() if q not in leading},
    ]
    return [wave for wave in waves if wave]


def parse_queue_numbers(option: str, text: str, *, low: int) -> Offsets:
    """A number for each queue; BadOption for one below `low`."""
    found: Offsets = {}
    for topic, brokers in _members(option, _parsed(option, text)).items():
        for broker_name, queues in _members(option, brokers).items():
            for queue_id, number in _members(option, queues).items():
                queue = _queue(option, topic, broker_name, queue_id)
                if isinstance(number, bool) or not isinstance(number, int) or number < low:
                    raise BadOption(f"{option}: {where(queue)} is set to {number!r}; give a whole number from {low} on")
                found[queue] = number
    if not found:
        raise BadOption(f"{option} names no queue: {_EXAMPLE}")
    return dict(sorted(found.items()))


def parse_assignment(option: str, text: str) -> tuple[MessageQueue, ...]:
    """The queues to read."""
    found: set[MessageQueue] = set()
    for topic, brokers in _members(option, _parsed(option, text)).items():
        for broker_name, queues in _members(option, brokers).items():
            if not isinstance(queues, list):
                raise BadOption(
                    f'{option}: {queues!r} is not a list of queues; write for example {{"t":{{"b":[0,1]}}}}'
                )
            found |= {_queue(option, topic, broker_name, queue_id) for queue_id in queues}
    if not found:
        raise BadOption(f'{option} names no queue: write for example {{"Orders":{{"broker-a":[0,1]}}}}')
    return tuple(sorted(found))


_EXAMPLE = 'write for example {"Orders":{"broker-a":{"0":23}}}'


def _parsed(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(f"{option} is not JSON ({error}): {_EXAMPLE}") from error


def _members(option: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadOption(f"{option}: {value!r} is not a JSON object; {_EXAMPLE}")
    return value


def _queue(option: str, topic: str, broker_name: str, queue_id: Any) -> MessageQueue:
    text = str(queue_id)
    if isinstance(queue_id, bool) or not text.isdigit():
        raise BadOption(
            f"{option}: {queue_id!r} is not a queue number (topic {topic} broker {broker_name}): queues are 0, 1, …"
        )
    return MessageQueue(topic, broker_name, int(text))
