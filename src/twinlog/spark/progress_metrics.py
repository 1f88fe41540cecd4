"""How far streams are behind their topics, under the names that Spark's Kafka source uses.

Spark fills `sources[].metrics` of a query's progress only for sources that are written in Java. A Python source gives
its newest offsets, from which the same three numbers are computed: by `offsets_behind` for one progress, and by a
listener, which `register` installs, for all queries of a session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.offsets import decode_offsets
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
NAMES = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")


def offsets_behind(source: Any) -> dict[str, str]:
    """The metrics of one source in a query's progress, as text like Kafka's; empty for a source that is not ours.

    `source` is an element of `query.lastProgress["sources"]` or of a listener's `event.progress.sources`.
    """
    try:
        end, latest = (decode_offsets(_offsets(source, name)) for name in ("endOffset", "latestOffset"))
    except (SparkSourceError, TypeError, ValueError, KeyError, AttributeError):
        return {}
    behind = [max(0, at - end.get(queue, 0)) for queue, at in latest.items()]
    if not behind:
        return {}
    numbers = (min(behind), max(behind), sum(behind) / len(behind))
    return {name: str(number) for name, number in zip(NAMES, numbers, strict=True)}


class LagListener(StreamingQueryListener):
    """Keeps the newest metrics of each query in `metrics`, by its id, and logs them."""

    def __init__(self) -> None:
        self.metrics: dict[str, dict[str, str]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        found = [metrics for source in progress.sources if (metrics := offsets_behind(source))]
        if not found:
            return
        metrics = found[0] if len(found) == 1 else _together(found)
        self.metrics[str(progress.id)] = metrics
        name = progress.name or str(progress.id)
        log.info("progress of a stream", query=name, batch=progress.batchId, rows=progress.numInputRows, **metrics)

    def onQueryIdle(self, event: Any) -> None:
        """Its numbers have not changed."""

    def onQueryTerminated(self, event: Any) -> None:
        self.metrics.pop(str(event.id), None)


def _together(sources: list[dict[str, str]]) -> dict[str, str]:
    """The metrics of a query with several sources."""
    low, high, average = ([float(one[name]) for one in sources] for name in NAMES)
    numbers = (int(min(low)), int(max(high)), sum(average) / len(average))
    return {name: str(number) for name, number in zip(NAMES, numbers, strict=True)}


def _offsets(source: Any, name: str) -> dict[str, int]:
    found = source[name] if isinstance(source, Mapping) else getattr(source, name)
    return json.loads(found) if isinstance(found, str) else dict(found)
