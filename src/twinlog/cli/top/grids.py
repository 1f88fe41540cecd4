"""The four tables of `twinlog top`: cells that sort by value and are shown as text. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twinlog.observe.cluster.cluster_view import ClusterView
from twinlog.observe.cluster.health import Level
from twinlog.observe.traffic import Traffic
from twinlog.observe.units import ago_text, bytes_text, count_text, duration_text, percent_text

TABS = ("brokers", "replicas", "topics", "groups")
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one round found."""

    view: ClusterView
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Cell:
    value: Any  # what it sorts by
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[Cell, ...]
    level: Level = Level.OK

    @property
    def key(self) -> str:
        """The same from round to round."""
        return "/".join(cell.text for cell in self.cells[:2])


@dataclass(frozen=True, slots=True)
class Grid:
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def grid_of(tab: str, found: Snapshot) -> Grid:
    make: dict[str, Callable[[Snapshot], Grid]] = {
        "brokers": _brokers,
        "replicas": _replicas,
        "topics": _topics,
        "groups": _groups,
    }
    return make[tab](found)


def arranged(grid: Grid, sort_at: int | None, *, reverse: bool = False, wanted: str = "") -> Grid:
    """The rows that contain the text `wanted`, sorted by a column; what is unknown stands last."""
    words = wanted.lower().split()
    rows = [row for row in grid.rows if all(any(word in cell.text.lower() for cell in row.cells) for word in words)]
    if sort_at is not None and sort_at < len(grid.columns):
        known = [row for row in rows if row.cells[sort_at].value is not None]
        known.sort(key=lambda row: row.cells[sort_at].value, reverse=reverse)
        rows = known + [row for row in rows if row.cells[sort_at].value is None]
    return Grid(grid.columns, tuple(rows))


def headline(found: Snapshot) -> str:
    """One line on the whole cluster: what is worst, or that all is well."""
    view = found.view
    if view.error:
        return f"no name server answers: {view.error}"
    if not view.groups:
        return "no brokers are registered"
    puts = sum(one.puts_per_second or 0.0 for one in view.brokers if one.is_master)
    counts = f"{len(view.brokers)} brokers in {len(view.groups)} groups, {puts:,.0f} msg/s in"
    if not view.unhealthy:
        return f"{counts}; all healthy"
    worst = view.unhealthy[0]
    return f"{counts}; {len(view.unhealthy)} not healthy: {worst.name}: {worst.health.reason}"


def _text(value: object) -> Cell:
    return Cell(None, _UNKNOWN) if value is None else Cell(str(value).lower(), str(value))


def _number(value: float | None, shown: Callable[[Any], str]) -> Cell:
    return Cell(None, _UNKNOWN) if value is None else Cell(value, shown(value))


def _rate(value: float | None) -> Cell:
    return _number(value, lambda rate: f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}")


def _brokers(found: Snapshot) -> Grid:
    columns = ("Broker", "ID", "Addr", "State", "Version", "In/s", "Out/s", "Disk", "Uptime", "Reason")
    rows = [
        Row(
            (
                _text(one.name),
                _number(one.broker_id, str),
                _text(one.address),
                _text(one.health.level.word),
                _text(one.software),
                _rate(one.puts_per_second),
                _rate(one.gets_per_second),
                _number(one.disk_share, percent_text),
                _number(one.uptime_ms, duration_text),
                _text("" if one.health.is_ok else one.health.reason),
            ),
            one.health.level,
        )
        for one in found.view.brokers
    ]
    return Grid(columns, tuple(rows))


def _replicas(found: Snapshot) -> Grid:
    columns = ("Broker", "ID", "Addr", "State", "InSync", "Lag", "Messages", "Behind", "Rate", "Reason")
    rows = [
        Row(
            (
                _text(group.name),
                _number(one.broker_id, str),
                _text(one.address),
                _text(one.state or ("no answer" if one.kind == "silent" else None)),
                _text({True: "yes", False: "no", None: None}[one.in_sync]),
                _number(one.lag_bytes, bytes_text),
                _number(one.lag_messages, lambda count, one=one: count_text(count, exact=one.lag_messages_exact)),
                _number(one.lag_ms, duration_text),
                _number(one.bytes_per_second, lambda rate: f"{bytes_text(rate)}/s"),
                _text("" if one.health.is_ok else one.health.reason),
            ),
            one.health.level,
        )
        for group in found.view.groups
        for one in group.replicas
    ]
    return Grid(columns, tuple(rows))


def _topics(found: Snapshot) -> Grid:
    columns = ("Topic", "Brokers", "Queues", "In/s", "Stored", "Held", "Newest")
    now_ms = found.view.at_ms
    rows = [
        Row(
            (
                _text(one.name),
                _number(one.brokers, str),
                _number(one.queues, str),
                _rate(one.per_second),
                _number(one.stored, count_text),
                _number(one.held, count_text),
                Cell(one.last_ms, ago_text(one.last_ms, now_ms) if one.last_ms else _UNKNOWN),
            )
        )
        for one in found.traffic.topics
    ]
    return Grid(columns, tuple(rows))


def _groups(found: Snapshot) -> Grid:
    columns = ("Group", "Members", "Topics", "Out/s", "Behind", "Consumed to")
    now_ms = found.view.at_ms
    rows = [
        Row(
            (
                _text(one.name),
                _number(one.members, str),
                _number(one.topics, str),
                _rate(one.per_second),
                _number(one.behind, count_text),
                Cell(one.last_ms, ago_text(one.last_ms, now_ms) if one.last_ms else _UNKNOWN),
            ),
            Level.WARNING if one.behind and one.members == 0 else Level.OK,
        )
        for one in found.traffic.groups
    ]
    return Grid(columns, tuple(rows))


def grid_data(grid: Grid) -> list[dict[str, Any]]:
    """For JSON: numbers stay numbers; what is unknown is null."""
    return [{name: _plain(cell) for name, cell in zip(grid.columns, row.cells, strict=True)} for row in grid.rows]


def _plain(cell: Cell) -> Any:
    return cell.text if isinstance(cell.value, str) else cell.value


def numbers_of(grid: Grid) -> Sequence[bool]:
    """Which columns hold numbers, and are aligned to the right."""
    return [
        bool(grid.rows) and not any(isinstance(row.cells[at].value, str) for row in grid.rows)
        for at in range(len(grid.columns))
    ]
