"""Metric names with their labels, rows of numbers for them, and both as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One name; a counter's is without `_total`, which the text format adds."""

    name: str
    text: str
    labels: Labels
    kind: Literal["counter", "gauge"] = "gauge"


Row = tuple[Metric, Labels, float]


class Families:
    """Rows by metric. Equal labels are added up, as a sum over brokers is a row as well."""

    def __init__(self) -> None:
        self._families: dict[Metric, dict[Labels, float]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        for metric, labels, value in rows:
            assert len(labels) == len(metric.labels), (metric.name, labels)
            family = self._families.setdefault(metric, {})
            family[labels] = family.get(labels, 0) + value

    @property
    def series(self) -> int:
        return sum(len(rows) for rows in self._families.values())

    def text(self) -> bytes:
        """The Prometheus text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)  # type: ignore[arg-type]
        return generate_latest(registry)

    def collect(self) -> Iterator[Any]:
        """The Prometheus library's collector protocol."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for metric, rows in sorted(self._families.items(), key=lambda item: item[0].name):
            made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = made(metric.name, metric.text, labels=metric.labels)
            for labels, value in rows.items():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Any]:
        return []
