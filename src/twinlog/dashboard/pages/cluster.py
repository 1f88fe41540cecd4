"""Cluster: every broker, and which group is unhealthy, at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nicegui import ui

from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, Part, join, tag
from twinlog.dashboard.pages.roles import group_link, role_text
from twinlog.dashboard.widgets.actions import act, action_button
from twinlog.dashboard.widgets.charts import LineChart
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import bar, health_cell, level_class, panel_title, pill, table, tile, tiles
from twinlog.observe.cluster.cluster_view import BrokerView, ClusterView
from twinlog.observe.cluster.health import DISK_SHARE_CRITICAL, DISK_SHARE_WARNING, Level
from twinlog.observe.cluster.history import Event
from twinlog.observe.units import count_text, duration_text, rate_text, time_text

_COLUMNS = ("Broker", "Role", "Software", "In", "Out", "Disk", "Uptime", "Health")
_NUMBERS = ("In", "Out", "Disk", "Uptime")
_CHART_MS = 15 * 60 * 1000
_EVENTS_SHOWN = 20
_BROKERS_SHOWN = 200


async def build(context: PageContext) -> None:
    summary = LiveHtml()
    alerts = LiveHtml()
    with ui.element("section").classes("tl-panel"):
        brokers = LiveHtml()
        forget = ui.row().classes("tl-toolbar")
    with ui.element("section").classes("tl-panel"):
        ui.html(panel_title("Messages", "all brokers together, the last 15 minutes"), sanitize=False)
        with ui.element("div").classes("tl-charts"):
            puts = LineChart("In", "msg/s", rate_text)
            gets = LineChart("Out", "msg/s", rate_text)
    with ui.element("section").classes("tl-panel"):
        events = LiveHtml()
    offered: list[str] = []

    def refresh() -> None:
        observer = context.observer
        view = observer.view
        if view is None:
            summary.show(tag("p", "Asking the name servers …", cls="tl-empty"))
            return
        summary.show(summary_markup(view))
        alerts.show(alerts_markup(view))
        brokers.show(brokers_markup(view))
        events.show(events_markup(list(observer.history.events)))
        for chart, name in ((puts, "puts"), (gets, "gets")):
            chart.show({"all brokers": _sum(context, view, name)})
        gone = [one.address for one in view.brokers if not one.is_registered]
        if gone != offered:
            offered[:] = gone
            _offer_to_forget(context, forget, gone)

    context.every_round(refresh)


def summary_markup(view: ClusterView) -> Markup:
    """The numbers of the whole cluster."""
    brokers, sick = view.brokers, view.unhealthy
    answering = [one for one in brokers if one.kind != "silent"]
    java = sum(one.kind == "java" for one in answering)
    kinds = ", ".join(f"{n} {name}" for n, name in ((len(answering) - java, "Twinlog"), (java, "Java")) if n)
    worst = sick[0].health.level if sick else Level.OK
    health = f"{len(sick)} of {len(view.groups)} not healthy" if sick else "all healthy"
    masters = [one for one in brokers if one.is_master]
    return tiles(
        tile("Health", health, _groups(view), worst),
        tile("Brokers", f"{len(answering)} of {len(brokers)}", f"answer; {kinds}" if kinds else "answer"),
        tile("In", rate_text(_total([one.puts_per_second for one in masters])), "to masters"),
        tile("Out", rate_text(_total([one.gets_per_second for one in brokers])), "from all brokers"),
    )


def alerts_markup(view: ClusterView) -> Markup:
    """The groups that need somebody, the worst first."""
    lines = [
        tag(
            "li",
            pill(one.health.level),
            tag("strong", one.name),
            tag("span", one.health.reason, cls="tl-reason"),
            tag("a", "Look at its replication", href=group_link(one.cluster, one.name)),
            cls=f"tl-{level_class(one.health.level)}",
        )
        for one in view.unhealthy
    ]
    return tag("ul", *lines, cls="tl-alerts", aria_label="Groups that are not healthy") if lines else Markup("")


def brokers_markup(view: ClusterView) -> Markup:
    parts: list[Markup] = []
    for cluster in sorted({one.cluster for one in view.groups}):
        found = [one for one in view.brokers if one.cluster == cluster]
        note = f"{len(found)} brokers"
        if len(found) > _BROKERS_SHOWN:
            found = sorted(found, key=lambda one: -one.health.level)[:_BROKERS_SHOWN]
            note += f"; {_BROKERS_SHOWN} are shown, those that are not healthy first"
        rows = [_row(one) for one in found]
        ids = [f"broker-{one.address}" for one in found]
        parts.append(panel_title(cluster, note))
        parts.append(table(_COLUMNS, rows, caption=f"Brokers of {cluster}", numbers=_NUMBERS, row_ids=ids))
    return join(parts) if parts else tag("p", "No broker is registered with these name servers.", cls="tl-empty")


def events_markup(events: Sequence[Event]) -> Markup:
    newest = list(reversed(events))[:_EVENTS_SHOWN]
    rows = [(time_text(one.at_ms), one.group, pill(one.level), one.text) for one in newest]
    body = table(
        ("Time", "Group", "State", "What happened"),
        rows,
        caption="What happened lately",
        empty="Nothing has changed since the dashboard was started.",
    )
    return panel_title("What happened", "since the dashboard was started") + body


def _row(one: BrokerView) -> Sequence[Part]:
    level = Level.OK
    if one.disk_share is not None and one.disk_share >= DISK_SHARE_WARNING:
        level = Level.CRITICAL if one.disk_share >= DISK_SHARE_CRITICAL else Level.WARNING
    name = tag("a", one.name, href=group_link(one.cluster, one.name), cls="tl-name")
    return (
        join([name, tag("div", one.address, cls="tl-sub")]),
        tag("span", role_text(one.broker_id, one.role), cls="tl-nowrap"),
        one.software,
        _traffic(one.puts_per_second, one.put_today),
        _traffic(one.gets_per_second, one.got_today),
        bar(one.disk_share, level),
        duration_text(one.uptime_ms),
        health_cell(one.health),
    )


def _traffic(per_second: float | None, today: int | None) -> Part:
    if per_second is None:
        return None
    return join([rate_text(per_second), tag("div", f"{count_text(today)} msg today", cls="tl-sub")])


def _groups(view: ClusterView) -> str:
    masters = len(view.groups)
    return f"{masters} group{'s' if masters != 1 else ''} of brokers"


def _total(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def _sum(context: PageContext, view: ClusterView, name: str) -> list[tuple[int, float | None]]:
    """The series of all brokers added up; a broker without a value at a time adds nothing."""
    found: dict[int, float] = {}
    for broker in view.brokers:
        if name == "puts" and not broker.is_master:
            continue
        for at_ms, value in context.observer.history.series((name, broker.address)).since(view.at_ms - _CHART_MS):
            if value is not None:
                found[at_ms] = found.get(at_ms, 0.0) + value
    return sorted(found.items())


def _offer_to_forget(context: PageContext, row: ui.row, gone: Sequence[str]) -> None:
    row.clear()
    with row:
        for address in gone:
            button = action_button(context, f"Forget {address}", "visibility_off", partial(_forget, context, address))
            if button is not None:
                button.tooltip("It is shown until it is back, or forgotten here. Nothing changes in the cluster.")


async def _forget(context: PageContext, address: str) -> None:
    async def work(_: Changer) -> str:
        context.observer.survey.forget(address)
        return f"{address} is not shown any more, until it is back"

    await act(context, f"forget {address}", work)


PAGE = Page("/", "Cluster", "hub", "c", build)
