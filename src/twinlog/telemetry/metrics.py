"""Numbers for Prometheus.

A hot path adds to a plain integer; names, help texts and label sets are put together only at a scrape. The Prometheus
library is imported at the first scrape, since most brokers in tests and demos never see one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

Kind = Literal["counter", "gauge"]
Labels = tuple[str, ...]
Rows = Mapping[Labels, float]
Histograms = Mapping[Labels, tuple[Sequence[int], float]]
"""by labels: how many values there were up to each step and above all, and their sum"""


class Number:
    """One value that its owner changes: a counter only grows, a gauge goes both ways. One writing thread each."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


class Family:
    """Numbers of one name, one for each set of label values."""

    __slots__ = ("_rows", "label_names")

    def __init__(self, label_names: Labels) -> None:
        self.label_names = label_names
        self._rows: dict[Labels, Number] = {}

    def labels(self, *values: str) -> Number:
        assert len(values) == len(self.label_names), (self.label_names, values)
        number = self._rows.get(values)
        if number is None:
            number = self._rows[values] = Number()
        return number

    def remove(self, *values: str) -> None:
        self._rows.pop(values, None)

    def rows(self) -> Rows:
        return {labels: number.value for labels, number in self._rows.items()}


class Metrics:
    """All numbers of one process; it is passed to the parts that count something."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, Kind, Labels, Callable[[], float | Rows]]] = {}
        self._histograms: dict[str, tuple[str, Sequence[float], Labels, Callable[[], Histograms]]] = {}
        self._registry: Any = None

    def counter(self, name: str, text: str) -> Number:
        number = Number()
        self.watch(name, text, lambda: number.value, kind="counter")
        return number

    def gauge(self, name: str, text: str) -> Number:
        number = Number()
        self.watch(name, text, lambda: number.value)
        return number

    def family(self, name: str, text: str, label_names: Iterable[str], kind: Kind = "counter") -> Family:
        family = Family(tuple(label_names))
        self.watch(name, text, family.rows, kind=kind, label_names=family.label_names)
        return family

    def watch(
        self,
        name: str,
        text: str,
        read: Callable[[], float | Rows],
        *,
        kind: Kind = "gauge",
        label_names: Iterable[str] = (),
    ) -> None:
        """Ask `read` at every scrape: a number, or with labels a mapping from their values to numbers."""
        assert name not in self._sources, f"metric {name} is registered twice"
        self._sources[name] = (text, kind, tuple(label_names), read)

    def watch_histogram(
        self, name: str, text: str, steps: Sequence[float], read: Callable[[], Histograms], label_names: Iterable[str]
    ) -> None:
        """Ask `read` at every scrape for the counts of each set of label values."""
        assert name not in self._histograms, f"metric {name} is registered twice"
        self._histograms[name] = (text, steps, tuple(label_names), read)

    @contextlib.contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Forget what is registered within the block at its end, so that it can be registered again."""
        before, histograms = set(self._sources), set(self._histograms)
        try:
            yield
        finally:
            self._sources = {name: source for name, source in self._sources.items() if name in before}
            self._histograms = {name: one for name, one in self._histograms.items() if name in histograms}

    def samples(self) -> dict[str, float | Rows]:
        """Current values by metric name."""
        return {name: read() for name, (_, _, _, read) in self._sources.items()}

    def exposition(self) -> bytes:
        """The Prometheus text format, with the process's own memory, CPU and descriptors."""
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

        if self._registry is None:
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            GCCollector(registry=registry)
            registry.register(self)  # type: ignore[arg-type]
            self._registry = registry
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Any]:
        """The Prometheus library's collector protocol."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (text, kind, label_names, read) in self._sources.items():
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            metric = family(name, text, labels=label_names)
            try:
                found = read()
            except Exception:  # a reader that fails must not hide all other metrics
                found = math.nan
            rows = found if isinstance(found, Mapping) else {(): found}
            for labels, value in rows.items():
                metric.add_metric(list(labels), value)
            yield metric
        yield from self._collect_histograms()

    def _collect_histograms(self) -> Iterable[Any]:
        from prometheus_client.core import HistogramMetricFamily

        for name, (text, steps, label_names, read) in self._histograms.items():
            metric = HistogramMetricFamily(name, text, labels=label_names)
            bounds = [*(str(float(step)) for step in steps), "+Inf"]
            found: Histograms = {}
            with contextlib.suppress(Exception):  # a reader that fails must not hide all other metrics
                found = read()
            for labels, (counts, total) in found.items():
                metric.add_metric(list(labels), list(zip(bounds, accumulate(counts), strict=True)), total)
            yield metric

    def describe(self) -> Iterable[Any]:
        return []
