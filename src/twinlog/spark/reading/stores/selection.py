"""Which records of a store are wanted, by the options: topics or queues, a range of the log, a range of time.

Segments that cannot hold a wanted record are not opened, and records of other topics never become columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from twinlog.spark.errors import BadOption
from twinlog.spark.offsets import parse_assignment
from twinlog.spark.option_values import OptionValues
from twinlog.spark.reading.stores.log_ranges import SegmentFile
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.wire.bodies import MessageQueue

_TIME_MAX = 1 << 62
# Store times grow along a log unless a clock was set back: only segments this far from the range are skipped.
_CLOCK_MARGIN_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The wanted records; an empty selection wants all."""

    topics: frozenset[str] = frozenset()
    queues: frozenset[MessageQueue] = frozenset()
    begins: Mapping[str, int] = field(default_factory=dict)  # broker name -> first physical offset
    ends: Mapping[str, int] = field(default_factory=dict)  # broker name -> end of the range
    from_ms: int = 0
    to_ms: int = _TIME_MAX

    def wants_store(self, broker_name: str) -> bool:
        return not self.queues or any(queue.broker_name == broker_name for queue in self.queues)

    def wants_any(self, owners: Iterable[tuple[str, int]], broker_name: str) -> bool:
        """Whether one of these topics and queues is wanted."""
        if self.queues:
            return any(MessageQueue(topic, broker_name, queue_id) in self.queues for topic, queue_id in owners)
        return not self.topics or any(topic in self.topics for topic, _ in owners)

    def in_time(self, segments: Sequence[SegmentFile]) -> list[SegmentFile]:
        """The segments that may hold records of the wanted time."""
        if not self.from_ms and self.to_ms == _TIME_MAX:
            return list(segments)
        begins = [_begin_ms(one) for one in segments]
        ends = [*begins[1:], None]  # a segment ends before the first record of the next
        low, high = self.from_ms - _CLOCK_MARGIN_MS, self.to_ms + _CLOCK_MARGIN_MS
        return [
            one
            for one, begin, end in zip(segments, begins, ends, strict=True)
            if (begin is None or begin < high) and (end is None or end >= low)
        ]

    def select(self, records: ScannedRecords, broker_name: str) -> ScannedRecords:
        """Those of `records` that are wanted; the plan has applied the range of the log already."""
        keep = np.ones(len(records), bool)
        if self.topics or self.queues:
            wanted = {queue.topic for queue in self.queues} or self.topics
            good = np.array([topic in wanted for topic in records.topics], bool)
            keep &= good[records.topic_number] if len(good) else False
        if self.queues:
            keep &= self._in_queues(records, broker_name)
        if self.from_ms or self.to_ms != _TIME_MAX:
            keep &= (records.store_timestamp >= self.from_ms) & (records.store_timestamp < self.to_ms)
        return records if keep.all() else records.select(keep)

    def _in_queues(self, records: ScannedRecords, broker_name: str) -> np.ndarray:
        found = np.zeros(len(records), bool)
        for number, topic in enumerate(records.topics):
            ids = [one.queue_id for one in self.queues if (one.topic, one.broker_name) == (topic, broker_name)]
            found |= (records.topic_number == number) & np.isin(records.queue_id, ids)
        return found


SELECTING = ("topic", "subscribe", "assign", "startingTimestamp")
SELECTING_IN_BATCH = ("startingOffsets", "endingOffsets", "endingTimestamp")


def selection(values: OptionValues, broker_names: Iterable[str], *, streaming: bool) -> Selection:
    """The selection of the options; BadOption for a broker that has no store here."""
    given = [name for name in ("topic", "subscribe", "assign") if name in values]
    if len(given) > 1:
        raise BadOption(f"give one of topic, subscribe, assign: there are {', '.join(given)}")
    known = sorted(set(broker_names))
    queues = frozenset(parse_assignment("assign", values.text("assign") or "")) if "assign" in values else frozenset()
    for queue in sorted(queues):
        _check_broker("assign", queue.broker_name, known)
    topics = frozenset(values.names(given[0])) if given and not queues else frozenset()
    to_ms = None if streaming else values.moment_ms("endingTimestamp")
    return Selection(
        topics=topics,
        queues=queues,
        begins={} if streaming else _offsets_by_broker(values, "startingOffsets", "earliest", known),
        ends={} if streaming else _offsets_by_broker(values, "endingOffsets", "latest", known),
        from_ms=values.moment_ms("startingTimestamp") or 0,
        to_ms=_TIME_MAX if to_ms is None else to_ms,
    )


def _offsets_by_broker(values: OptionValues, option: str, word: str, known: Sequence[str]) -> dict[str, int]:
    """A physical offset for each named store; the others are not limited."""
    text = values.text(option) or word
    if text.lower() == word:
        return {}
    hint = f'give {word}, or physical offsets by broker, for example {{"{known[0]}":1073741824}}'
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadOption(f"option {option} is {text!r}: {hint}")
    for broker_name, place in found.items():
        _check_broker(option, broker_name, known)
        if isinstance(place, bool) or not isinstance(place, int) or place < 0:
            raise BadOption(f"{option}: broker {broker_name} is set to {place!r}: {hint}")
    return found


def _check_broker(option: str, broker_name: str, known: Sequence[str]) -> None:
    if broker_name not in known:
        raise BadOption(
            f"{option}: there is no store of broker {broker_name!r}; there are stores of {', '.join(known)}"
        )


def _begin_ms(file: SegmentFile) -> int | None:
    """The time of a segment's first record; None if it is damaged or the broker has just deleted the file."""
    try:
        segment = file.open()
    except FileNotFoundError:
        return None
    try:
        batch = next(scan(segment.map, 0, file.end, file.base, check_crc=False, batch_records=1))
        return int(batch.store_timestamp[0]) if len(batch) else None
    finally:
        segment.close()
