"""Topics: all of them, and of one its queues, routes, traffic and the groups that read it."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from nicegui import ui

from twinlog.base.clock import wall_clock_ms
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.dialogs.topic_dialogs import change_topic, create_topic, delete_topic
from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.widgets.actions import action_button
from twinlog.dashboard.widgets.charts import LineChart
from twinlog.dashboard.widgets.data_table import Column, DataTable
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import panel_title, table, tile, tiles
from twinlog.observe.cluster.history import Series
from twinlog.observe.topics import TopicView, kind_of, message_type, permission_text, topic_view
from twinlog.observe.units import ago_text, count_text, rate_text, time_text
from twinlog.wire.bodies import TopicConfig

_LIST_S, _DETAIL_S = 10.0, 3.0
_CHART_MS = 15 * 60 * 1000


async def build(context: PageContext) -> None:
    await context.observer.first_view()
    topic = context.query.get("topic")
    if topic:
        await _Detail(context, topic).build()
    else:
        await _list(context)


# -- all topics ---------------------------------------------------------------------------------


async def _list(context: PageContext) -> None:
    with ui.element("section").classes("tl-panel"):
        with ui.row().classes("tl-toolbar tl-toolbar-top"):
            others = ui.switch("System, retry and dead-letter topics")

            async def create() -> None:
                name = await create_topic(context)
                if name:
                    ui.navigate.to(topic_link(name))

            action_button(context, "Create a topic", "add", create)
        shown = DataTable(
            (
                Column("name", "Topic", link_field="link"),
                Column("kind", "Kind"),
                Column("brokers", "Brokers", is_number=True),
                Column("queues", "Queues", is_number=True),
                Column("permission", "Permission"),
                Column("type", "Messages"),
            ),
            label="topics",
            empty="no topic",
        )
        problem = LiveHtml()

    async def refresh() -> None:
        if not context.is_open():
            return
        rows, problems = await topic_rows(context)
        shown.show([row for row in rows if others.value or row["kind"] == "normal"])
        problem.show(tag("p", *problems, cls="tl-empty") if problems else Markup(""))

    others.on_value_change(refresh)
    await refresh()
    ui.timer(_LIST_S, refresh)


async def topic_rows(context: PageContext) -> tuple[list[dict[str, Any]], list[str]]:
    """One row per topic, from the tables of all masters; and what could not be asked."""
    masters = context.observer.masters()
    if not masters:
        return [], ["No master answers."]
    answers = await asyncio.gather(
        *(context.admin.topic_configs(address) for address in masters.values()), return_exceptions=True
    )
    found: dict[str, dict[str, TopicConfig]] = {}
    problems: list[str] = []
    for name, answer in zip(masters, answers, strict=True):
        if isinstance(answer, REQUEST_FAILURES):
            problems.append(f"{name}: {answer} ")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for topic, config in answer.topic_config_table.items():
                found.setdefault(topic, {})[name] = config
    view = context.observer.view
    clusters = sorted({one.cluster for one in view.groups}) if view is not None else []
    return [_row(topic, configs, clusters) for topic, configs in sorted(found.items())], problems


def _row(topic: str, configs: dict[str, TopicConfig], clusters: list[str]) -> dict[str, Any]:
    kinds = {kind_of(topic, cluster, name) for cluster in clusters or [""] for name in configs}
    return {
        "id": topic,
        "name": topic,
        "link": topic_link(topic),
        "kind": "system" if "system" in kinds else next(iter(kinds), "normal"),
        "brokers": len(configs),
        "queues": sum(config.write_queue_nums for config in configs.values()),
        "permission": " / ".join(sorted({permission_text(config.perm) for config in configs.values()})),
        "type": " / ".join(sorted({message_type(config) for config in configs.values()})),
    }


# -- one topic ----------------------------------------------------------------------------------


class _Detail:
    def __init__(self, context: PageContext, topic: str) -> None:
        self._context, self._topic = context, topic
        self._view: TopicView | None = None
        self._rate, self._held = Series(), Series()

    async def build(self) -> None:
        title = tag("a", "All topics", href="/topics") + tag("h2", self._topic, cls="tl-subject")
        ui.html(title, sanitize=False).classes("tl-crumbs")
        self._summary = LiveHtml()
        with ui.element("div").classes("tl-known") as self._known:
            self._build_known()
        await self._refresh()
        ui.timer(_DETAIL_S, self._refresh)

    def _build_known(self) -> None:
        """What is shown of a topic that exists."""
        context = self._context
        with ui.row().classes("tl-toolbar tl-toolbar-bare"):
            ui.link("Its messages", f"/messages?topic={quote(self._topic, safe='')}").classes("tl-button-link")
            action_button(context, "Change", "edit", self._change)
            action_button(context, "Delete", "delete", self._delete)
        with ui.element("section").classes("tl-panel"):
            ui.html(panel_title("Traffic and backlog", "since this page was opened"), sanitize=False)
            with ui.element("div").classes("tl-charts"):
                self._rates = LineChart("Messages in", "msg/s", rate_text)
                self._backlogs = LineChart("Backlog of each group", "msg", messages_text)
        with ui.element("section").classes("tl-panel"):
            self._groups = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._queues = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._route = LiveHtml()

    async def _refresh(self) -> None:
        if not self._context.is_open():
            return
        now_ms = wall_clock_ms()
        try:
            view = self._view = await topic_view(self._context.admin, self._topic)
        except REQUEST_FAILURES as error:
            self._summary.show(tag("p", str(error), cls="tl-result tl-critical"))
            self._known.set_visibility(self._view is not None)
            return
        self._known.set_visibility(True)
        self._rate.add(now_ms, view.per_second)
        self._summary.show(summary_markup(view, now_ms))
        self._queues.show(queues_markup(view))
        self._route.show(route_markup(view))
        self._groups.show(self._groups_markup())
        self._rates.show({"in": self._rate.since(now_ms - _CHART_MS)})
        backlogs = self._context.observer.backlogs
        groups = sorted(backlogs.latest.of_topic(self._topic)) if backlogs.latest is not None else []
        lines = {one: backlogs.series(one, self._topic, now_ms - _CHART_MS) for one in groups[:6]}
        self._backlogs.show(lines)

    def _groups_markup(self) -> Markup:
        latest = self._context.observer.backlogs.latest
        found = latest.of_topic(self._topic) if latest is not None else {}
        rows = [
            (
                tag("a", group, href=f"/groups?group={quote(group, safe='')}", cls="tl-name"),
                count_text(sum(one.behind for one in brokers.values())),
                count_text(sum(one.in_flight for one in brokers.values())),
                rate_text(sum(one.per_second for one in brokers.values())),
            )
            for group, brokers in sorted(found.items())
        ]
        columns = ("Group", "Behind (msg)", "In flight (msg)", "Consumes")
        empty = "No group reads it." if latest is not None and not latest.silent else "Not known yet."
        body = table(columns, rows, caption="Groups that read it", numbers=columns[1:], empty=empty)
        return panel_title("Groups that read it") + body

    async def _change(self) -> None:
        if self._view is not None and self._view.brokers and await change_topic(self._context, self._view):
            await self._refresh()

    async def _delete(self) -> None:
        if self._view is None:
            return
        latest = self._context.observer.backlogs.latest
        groups = sorted(latest.of_topic(self._topic)) if latest is not None and not latest.silent else None
        if await delete_topic(self._context, self._view, groups):
            ui.navigate.to("/topics")


def summary_markup(view: TopicView, now_ms: int) -> Markup:
    missing = [
        tag("p", f"{name} does not answer, and is not counted: {why}", cls="tl-result tl-warning")
        for name, why in view.silent.items()
    ]
    last = ago_text(view.last_ms, now_ms) if view.last_ms else "never"
    shown = tiles(
        tile("Held", f"{count_text(view.held)} msg", f"{count_text(view.stored)} ever stored"),
        tile("In", rate_text(view.per_second), "over the last minute"),
        tile("Newest message", last, time_text(view.last_ms) if view.last_ms else None),
        tile("Queues", str(sum(len(one.queues) for one in view.brokers.values())), f"on {len(view.brokers)} brokers"),
    )
    return shown + tag("div", *missing)


def queues_markup(view: TopicView) -> Markup:
    columns = ("Broker", "Queue", "Oldest offset", "Next offset", "Held (msg)", "Newest message")
    rows = [
        (
            name,
            queue.queue_id,
            count_text(queue.low),
            count_text(queue.high),
            count_text(queue.held),
            time_text(queue.last_ms) if queue.last_ms else "never",
        )
        for name, on_broker in sorted(view.brokers.items())
        for queue in on_broker.queues
    ]
    ids = [f"queue-{name}-{queue.queue_id}" for name, one in sorted(view.brokers.items()) for queue in one.queues]
    body = table(columns, rows, caption="Queues", numbers=columns[1:5], row_ids=ids)
    return panel_title("Queues") + body


def route_markup(view: TopicView) -> Markup:
    queues = {one.broker_name: one for one in view.route.queue_datas}
    rows = []
    for data in sorted(view.route.broker_datas, key=lambda one: one.broker_name):
        found = queues.get(data.broker_name)
        addresses = [
            tag("div", f"{'master' if number == 0 else f'replica {number}'}: {address}")
            for number, address in sorted(data.broker_addrs.items())
        ]
        rows.append(
            (
                data.cluster,
                data.broker_name,
                addresses,
                found.read_queue_nums if found else None,
                found.write_queue_nums if found else None,
                permission_text(found.perm) if found else None,
            )
        )
    columns = ("Cluster", "Broker", "Addresses", "Queues to read", "Queues to write", "Permission")
    body = table(columns, rows, caption="Route", numbers=columns[3:5], empty="The name servers have no route.")
    return panel_title("Route", "as the name servers give it to clients") + body


def messages_text(count: float | None) -> str:
    return "unknown" if count is None else f"{count_text(int(count))} msg"


def topic_link(topic: str) -> str:
    return f"/topics?topic={quote(topic, safe='')}"


PAGE = Page("/topics", "Topics", "topic", "t", build)
