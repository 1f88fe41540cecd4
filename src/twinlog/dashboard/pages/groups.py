"""Groups: all consumer groups with their backlog, and of one its queues, consumers and settings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import DLQ_PREFIX, is_builtin_group
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.dialogs.group_dialogs import delete_group, save_group
from twinlog.dashboard.dialogs.reset_dialog import reset_group
from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, Part, tag
from twinlog.dashboard.widgets.actions import action_button, show_error
from twinlog.dashboard.widgets.charts import LineChart
from twinlog.dashboard.widgets.data_table import Column, DataTable
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import panel_title, table, tile, tiles
from twinlog.observe.cluster.health import Level
from twinlog.observe.groups.backlogs import Backlog
from twinlog.observe.groups.group_progress import GroupMember, Members, Progress, all_members
from twinlog.observe.topics import is_retry
from twinlog.observe.units import UNKNOWN, count_text, duration_text, rate_text, time_text
from twinlog.telemetry.rocketmq_names import consume_mode
from twinlog.wire.bodies import SubscriptionGroupConfig
from twinlog.wire.codes import version_name

_LIST_S, _DETAIL_S = 5.0, 3.0
_CHART_MS = 15 * 60 * 1000


async def build(context: PageContext) -> None:
    await context.observer.first_view()
    group = context.query.get("group")
    if group:
        await _Detail(context, group).build()
    else:
        await _list(context)


# -- all groups ---------------------------------------------------------------------------------


async def _list(context: PageContext) -> None:
    with ui.element("section").classes("tl-panel"):
        with ui.row().classes("tl-toolbar tl-toolbar-top"):
            others = ui.switch("System groups")

            async def create() -> None:
                name = await save_group(context, None)
                if name:
                    ui.navigate.to(group_link(name))

            action_button(context, "Create a group", "add", create)
        shown = DataTable(
            (
                Column("name", "Group", link_field="link"),
                Column("topics", "Topics"),
                Column("behind", "Behind (msg)", is_number=True, sort_field="behind_number"),
                Column("in_flight", "In flight (msg)", is_number=True, sort_field="in_flight_number"),
                Column("rate", "Consumes", is_number=True, sort_field="rate_number"),
            ),
            label="groups",
            empty="no group",
        )
    configs: dict[str, SubscriptionGroupConfig] = {}

    async def ask() -> None:
        if context.is_open():
            configs.clear()
            configs.update(await group_configs(context))
            refresh()

    def refresh() -> None:
        latest = context.observer.backlogs.latest
        names = {*configs, *(group for group, _ in (latest.rows if latest is not None else ()))}
        wanted = sorted(name for name in names if others.value or not is_builtin_group(name))
        shown.show([group_row(name, latest) for name in wanted])

    others.on_value_change(refresh)
    await ask()
    ui.timer(_LIST_S, ask)


async def group_configs(context: PageContext) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups; those of the first broker that has a group."""
    addresses = context.observer.masters().values()
    answers = await asyncio.gather(*(context.admin.groups(one) for one in addresses), return_exceptions=True)
    found: dict[str, SubscriptionGroupConfig] = {}
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, REQUEST_FAILURES):
                raise answer
            continue
        for name, config in answer.subscription_group_table.items():
            found.setdefault(name, config)
    return found


def group_row(group: str, latest: Backlog | None) -> dict[str, Any]:
    topics = latest.of_group(group) if latest is not None else {}
    rows = [one for brokers in topics.values() for one in brokers.values()]
    behind, in_flight, rate = sums(rows, latest)
    names = [topic for topic in sorted(topics) if not is_retry(topic)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return {
        "id": group,
        "name": group,
        "link": group_link(group),
        "topics": ", ".join(names[:3]) + more if names else "none yet" if latest is not None else UNKNOWN,
        "behind": count_text(behind),
        "behind_number": -1 if behind is None else behind,
        "in_flight": count_text(in_flight),
        "in_flight_number": -1 if in_flight is None else in_flight,
        "rate": rate_text(rate),
        "rate_number": -1 if rate is None else rate,
    }


def sums(rows: Sequence[Progress], latest: Backlog | None) -> tuple[int | None, int | None, float | None]:
    """Behind, in flight, and a second; None as long as nobody was asked, or a master that may have more is silent."""
    if latest is None or (latest.silent and not rows):
        return None, None, None
    return sum(one.behind for one in rows), sum(one.in_flight for one in rows), sum(one.per_second for one in rows)


# -- one group ----------------------------------------------------------------------------------


class _Detail:
    def __init__(self, context: PageContext, group: str) -> None:
        self._context, self._group = context, group
        self._members = Members()
        self._config: SubscriptionGroupConfig | None = None
        self._waits_ms: dict[str, int] = {}

    async def build(self) -> None:
        title = tag("a", "All groups", href="/groups") + tag("h2", self._group, cls="tl-subject")
        ui.html(title, sanitize=False).classes("tl-crumbs")
        self._summary = LiveHtml()
        with ui.element("div").classes("tl-known") as self._known:
            self._build_known()
        self._offered: list[str] = []
        await self._refresh()
        ui.timer(_DETAIL_S, self._refresh)

    def _build_known(self) -> None:
        """What is shown of a group that exists."""
        context = self._context
        with ui.row().classes("tl-toolbar tl-toolbar-bare"):
            dead = quote(DLQ_PREFIX + self._group, safe="")
            ui.link("Its dead letters", f"/messages?topic={dead}").classes("tl-button-link")
            action_button(context, "Reset offsets", "history", self._reset)
            action_button(context, "Change", "edit", self._change)
            action_button(context, "Delete", "delete", self._delete)
        with ui.element("section").classes("tl-panel"):
            ui.html(panel_title("Backlog", "since the dashboard was started, at most 15 minutes"), sanitize=False)
            with ui.element("div").classes("tl-charts"):
                self._chart = LineChart("Not consumed", "msg", messages_text)
        with ui.element("section").classes("tl-panel"):
            self._queues = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._clients = LiveHtml()
            self._client_row = ui.row().classes("tl-toolbar")
            self._client_info = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._settings = LiveHtml()

    async def _refresh(self) -> None:
        context = self._context
        if not context.is_open():
            return
        now_ms, masters = wall_clock_ms(), context.observer.masters()
        self._config = (await group_configs(context)).get(self._group)
        self._members = await all_members(context.admin, masters.values(), self._group)
        latest = context.observer.backlogs.latest
        topics = latest.of_group(self._group) if latest is not None else {}
        is_known = bool(self._config or self._members.clients or topics)
        self._known.set_visibility(is_known)
        if not is_known:
            self._summary.show(unknown_markup(self._group, masters, latest))
            return
        await self._ask_waits(topics, masters)
        self._summary.show(self._summary_markup(topics, latest))
        self._queues.show(queues_markup(topics, self._waits_ms))
        self._clients.show(clients_markup(self._members))
        self._settings.show(settings_markup(self._config))
        lines = {
            one: context.observer.backlogs.series(self._group, one, now_ms - _CHART_MS) for one in sorted(topics)[:6]
        }
        self._chart.show(lines)
        self._offer_clients()

    async def _ask_waits(self, topics: Mapping[str, Mapping[str, Progress]], masters: Mapping[str, str]) -> None:
        """How long the oldest message waits, of topics that are behind."""
        found: dict[str, int] = {}
        for topic, brokers in topics.items():
            for name, progress in brokers.items():
                if not progress.behind or name not in masters:
                    continue
                try:
                    spans = await self._context.admin.consume_spans(masters[name], self._group, topic)
                except REQUEST_FAILURES:
                    continue
                found[topic] = max(found.get(topic, 0), *spans.values(), 0)
        self._waits_ms = found

    def _summary_markup(self, topics: Mapping[str, Mapping[str, Progress]], latest: Backlog | None) -> Markup:
        rows = [one for brokers in topics.values() for one in brokers.values()]
        (behind, in_flight, rate), members = sums(rows, latest), len(self._members.clients)
        silent = latest.silent if latest is not None else ()
        level = Level.WARNING if behind and not members else None
        oldest = max(self._waits_ms.values(), default=0)
        missing = [
            tag("p", f"{name} does not answer, and is not counted", cls="tl-result tl-warning") for name in silent
        ]
        mode = consume_mode(self._members.consume_type) if members else "no consumer is connected"
        waits = f"the oldest waits for {duration_text(oldest or None)}" if behind else "nothing waits"
        waits = "nobody was asked yet" if behind is None else waits
        return tiles(
            tile("Behind", f"{count_text(behind)} msg", waits),
            tile("In flight", f"{count_text(in_flight)} msg", "given to consumers"),
            tile("Consumes", rate_text(rate), "over the last minute"),
            tile("Consumers", str(members), mode, level),
        ) + tag("div", *missing)

    def _offer_clients(self) -> None:
        ids = [client.client_id for client in self._members.clients]
        if ids == self._offered:
            return
        self._offered = ids
        self._client_row.clear()
        with self._client_row:
            for client in self._members.clients[:50]:
                button = ui.button(f"Ask {client.client_id}", icon="info").props("flat no-caps dense")
                button.on_click(lambda _, one=client: self._ask_client(one))

    async def _ask_client(self, client: GroupMember) -> None:
        try:
            info = await self._context.admin.running_info(self._group, client.client_id)
        except REQUEST_FAILURES as error:
            show_error(f"{client.client_id} does not answer: {error}")
            return
        self._client_info.show(client_markup(client, info))

    async def _reset(self) -> None:
        latest = self._context.observer.backlogs.latest
        topics = sorted(latest.of_group(self._group)) if latest is not None else []
        topics = sorted({*topics, *self._members.subscriptions}, key=lambda topic: (is_retry(topic), topic))
        if not topics:
            show_error(f"Group {self._group} has read no topic yet, so there is no offset to reset")
            return
        if await reset_group(self._context, self._group, topics, members=len(self._members.clients)):
            await self._refresh()

    async def _change(self) -> None:
        if self._config is not None and await save_group(self._context, self._config):
            await self._refresh()

    async def _delete(self) -> None:
        latest = self._context.observer.backlogs.latest
        behind = latest.behind(self._group) if latest is not None and not latest.silent else None
        if await delete_group(self._context, self._group, members=len(self._members.clients), behind=behind):
            ui.navigate.to("/groups")


def unknown_markup(group: str, masters: Mapping[str, str], latest: Backlog | None) -> Markup:
    """A group that nobody has, or that only a master without an answer may have."""
    if not masters or latest is None or latest.silent:
        return tag("p", f"No master that answers has a group '{group}'.", cls="tl-result tl-warning")
    return tag(
        "p", f"No broker has a group '{group}'. A consumer makes it when it connects.", cls="tl-result tl-critical"
    )


def queues_markup(topics: Mapping[str, Mapping[str, Progress]], waits_ms: Mapping[str, int]) -> Markup:
    columns = (
        "Topic",
        "Broker",
        "Queue",
        "Next offset",
        "Consumed to",
        "Behind (msg)",
        "In flight (msg)",
        "Last consumed",
    )
    rows: list[tuple[Part, ...]] = []
    ids: list[str] = []
    for topic, brokers in sorted(topics.items()):
        for name, progress in sorted(brokers.items()):
            for queue in progress.queues:
                link = tag("a", topic, href=f"/topics?topic={quote(topic, safe='')}")
                ids.append(f"progress-{topic}-{name}-{queue.queue_id}")
                rows.append(
                    (
                        link,
                        name,
                        queue.queue_id,
                        count_text(queue.broker_offset),
                        count_text(queue.consumed),
                        count_text(queue.behind),
                        count_text(queue.in_flight),
                        time_text(queue.last_ms) if queue.last_ms else "never",
                    )
                )
    late = [f"{topic}: {duration_text(ms)}" for topic, ms in sorted(waits_ms.items()) if ms]
    note = f"oldest message that waits: {', '.join(late)}" if late else None
    body = table(
        columns, rows, caption="Queues", numbers=columns[2:7], empty="It has consumed nothing yet.", row_ids=ids
    )
    return panel_title("Queues", note) + body


def clients_markup(members: Members) -> Markup:
    columns = ("Client", "Address", "Language", "Version")
    rows = [
        (
            one.client_id,
            one.address,
            one.language.lower(),
            version_name(one.version).removeprefix("V").replace("_", "."),
        )
        for one in members.clients
    ]
    body = table(columns, rows, caption="Consumers", empty="No consumer is connected.")
    filters = [
        (topic, tag("code", expression)) for topic, expression in members.subscriptions.items() if not is_retry(topic)
    ]
    subscribed = table(("Topic", "Expression"), filters, caption="Subscriptions") if filters else Markup("")
    return panel_title("Consumers") + body + (panel_title("Subscriptions") + subscribed if filters else "")


def client_markup(client: GroupMember, info: Mapping[str, Any]) -> Markup:
    """What a consumer said about itself."""
    status = info.get("statusTable")
    rows = [
        (
            str(topic),
            rate_text(_number(row.get("consumeOKTPS"))),
            rate_text(_number(row.get("consumeFailedTPS"))),
            _ms_text(_number(row.get("consumeRT"))),
            _ms_text(_number(row.get("pullRT"))),
        )
        for topic, row in (status.items() if isinstance(status, dict) else ())
        if isinstance(row, dict)
    ]
    columns = ("Topic", "Consumed", "Failed", "Time of a call", "Time of a pull")
    body = table(columns, rows, caption=f"Consumption of {client.client_id}", numbers=columns[1:])
    return panel_title(client.client_id, "as it says itself") + body


def settings_markup(config: SubscriptionGroupConfig | None) -> Markup:
    if config is None:
        return panel_title("Settings") + tag("p", "No broker has settings of this group.", cls="tl-empty")
    rows = [
        ("May consume", _yes(config.consume_enable)),
        ("May broadcast", _yes(config.consume_broadcast_enable)),
        ("Consumes in order", _yes(config.consume_message_orderly)),
        ("Retries before a dead letter", str(config.retry_max_times)),
        ("Queues of its retry topic", str(config.retry_queue_nums)),
        ("Reads from replica when slow", f"broker id {config.which_broker_when_consume_slowly}"),
        *((f"attribute {name}", value) for name, value in sorted(config.attributes.items())),
    ]
    return panel_title("Settings") + table(("Setting", "Value"), rows, caption="Settings")


def messages_text(count: float | None) -> str:
    return "unknown" if count is None else f"{count_text(int(count))} msg"


def group_link(group: str) -> str:
    return f"/groups?group={quote(group, safe='')}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _ms_text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} ms"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


PAGE = Page("/groups", "Groups", "groups", "g", build)
