"""Replication: master and replicas drawn, lag over time, both sides' metadata, comparison of logs, planned switch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import ui

from twinlog.base.clock import wall_clock_ms
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.pages import replication_parts as parts
from twinlog.dashboard.pages.replication_actions import compare_with, switch_to
from twinlog.dashboard.pages.roles import group_link
from twinlog.dashboard.widgets.actions import action_button
from twinlog.dashboard.widgets.charts import LineChart
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import panel_title
from twinlog.failover.etcd import EtcdError
from twinlog.failover.records import RecordBroken
from twinlog.metadata.errors import MetadataError
from twinlog.observe.cluster.cluster_view import ClusterView, GroupView
from twinlog.observe.cluster.replica_view import ReplicaView
from twinlog.observe.replicas.metadata_rows import differences
from twinlog.observe.units import byte_rate_text, bytes_text, count_text, duration_text

_CHART_MS = 15 * 60 * 1000
_TABLES_S = 5.0
Deed = Callable[[], Awaitable[None]]


async def build(context: PageContext) -> None:
    await _ReplicationPage(context).build()


class _ReplicationPage:
    def __init__(self, context: PageContext) -> None:
        self._context, self._observer = context, context.observer
        self._offered: tuple[str, ...] = ()

    async def build(self) -> None:
        self._tabs = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._pair = LiveHtml()
            self._buttons = ui.row().classes("tl-toolbar")
            self._result = LiveHtml().props('role="status"')
        with ui.element("section").classes("tl-panel"):
            ui.html(panel_title("Lag and transfer", "the last 15 minutes"), sanitize=False)
            with ui.element("div").classes("tl-charts"):
                self._charts = {
                    "lag_bytes": LineChart("Behind, in bytes", "bytes", bytes_text),
                    "lag_messages": LineChart("Behind, in messages", "msg", _messages),
                    "lag_seconds": LineChart("Behind, in time", "s", _seconds),
                    "transfer": LineChart("Transfer to the replica", "bytes/s", byte_rate_text),
                }
        with ui.element("section").classes("tl-panel"):
            self._replicas = LiveHtml()
            self._versions = LiveHtml(tag("p", "Asking master and replica for their metadata …", cls="tl-empty"))
        with ui.element("section").classes("tl-panel"):
            self._differences = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._changes = LiveHtml()
        with ui.element("section").classes("tl-panel"):
            self._history = LiveHtml()
        self._context.every_round(self._refresh)
        ui.timer(_TABLES_S, self._refresh_tables)

    # -- what is shown -------------------------------------------------------------------------

    def _group(self) -> GroupView | None:
        view = self._observer.view
        return None if view is None else chosen_group(view, self._context.query.get("group"))

    def _replica(self, group: GroupView) -> ReplicaView | None:
        wanted = self._context.query.get("replica")
        found = [one for one in group.replicas if one.address == wanted] or list(group.replicas)
        return found[0] if found else None

    def _refresh(self) -> None:
        view, group = self._observer.view, self._group()
        if view is None or group is None:
            text = "Asking the name servers …" if view is None else "No broker is registered."
            self._pair.show(tag("p", text, cls="tl-empty"))
            return
        links = [(one.name, group_link(one.cluster, one.name), one.health.level, one is group) for one in view.groups]
        self._tabs.show(parts.tabs_markup(links, "Groups of brokers"))
        rates = {one.address: self._observer.history.transfer_rate(group, one.address) for one in group.replicas}
        self._pair.show(parts.pair_markup(group, rates))
        for name, chart in self._charts.items():
            series = self._observer.history.series
            begin_ms = view.at_ms - _CHART_MS
            chart.show(
                {f"replica {one.broker_id}": series((name, one.address)).since(begin_ms) for one in group.replicas}
            )
        self._offer_actions(group)
        members = {one.address for one in group.brokers}
        self._changes.show(
            parts.changes_markup([one for one in self._observer.metadata_changes if one.address in members])
        )

    async def _refresh_tables(self) -> None:
        group = self._group()
        if group is None or not self._context.is_open():
            return
        await self._show_history(group)
        replica = self._replica(group)
        if group.master is None or replica is None:
            self._versions.show(
                panel_title("Metadata") + tag("p", "There are no two brokers to compare.", cls="tl-empty")
            )
            self._differences.show(Markup(""))
            return
        self._replicas.show(self._replica_tabs(group, replica))
        try:
            addresses = (group.master.address, replica.address)
            ours, theirs = await asyncio.gather(*(self._observer.tables(one) for one in addresses))
        except (*REQUEST_FAILURES, MetadataError) as error:
            self._show_no_metadata(f"Not known: {error}")
            return
        found = await asyncio.to_thread(differences, ours, theirs)
        self._versions.show(parts.versions_markup(found, replica, wall_clock_ms()))
        self._differences.show(parts.differences_markup(found))

    def _show_no_metadata(self, why: str) -> None:
        self._versions.show(panel_title("Metadata") + tag("p", why, cls="tl-empty"))
        self._differences.show(panel_title("Differences") + tag("p", "Not known.", cls="tl-empty"))

    def _replica_tabs(self, group: GroupView, shown: ReplicaView) -> Markup:
        if len(group.replicas) < 2:
            return Markup("")
        links = [
            (
                f"replica {one.broker_id}",
                group_link(group.cluster, group.name, one.address),
                one.health.level,
                one is shown,
            )
            for one in group.replicas
        ]
        return tag("div", parts.tabs_markup(links, "Replicas"), cls="tl-panel-body")

    async def _show_history(self, group: GroupView) -> None:
        note, rows = "as this dashboard saw it", []
        if group.has_failover and self._context.settings.failover is None:
            note = "as this dashboard saw it; start it with --etcd to see all masters"
        try:
            found = (await self._observer.failovers()).get((group.cluster, group.name))
            if found is not None:
                rows, note = found, "from etcd"
        except (EtcdError, RecordBroken, OSError) as error:
            note = f"etcd does not say: {error}"
        where = f"{group.cluster}/{group.name}"
        events = [one for one in self._observer.history.events if one.group == where]
        self._history.show(parts.history_markup(events, rows, note))

    # -- what can be done ----------------------------------------------------------------------

    def _offer_actions(self, group: GroupView) -> None:
        """Buttons are made again only if the brokers are others, so that they keep the focus."""
        master = group.master
        offered = (master.address if master else "", *(one.address for one in group.replicas))
        if offered == self._offered:
            return
        self._offered = offered
        self._buttons.clear()
        if master is None:
            return
        name, several = group.name, len(group.replicas) > 1
        with self._buttons:
            for replica in group.replicas:
                which = f" {replica.address}" if several else ""
                compare, switch = self._deeds(group.cluster, name, master.address, replica.address)
                action_button(self._context, f"Compare logs{which}", "compare_arrows", compare)
                if replica.kind == "twinlog":
                    action_button(self._context, f"Planned switch{which} …", "swap_horiz", switch)

    def _deeds(self, cluster: str, name: str, master: str, replica: str) -> tuple[Deed, Deed]:
        async def compare() -> None:
            await compare_with(self._context, self._result, master, replica)

        async def switch() -> None:
            await switch_to(self._context, self._result, cluster, name, replica)

        return compare, switch


def chosen_group(view: ClusterView, wanted: str | None) -> GroupView | None:
    """The group that the address names, else the worst one, else the first with a replica."""
    named = [one for one in view.groups if f"{one.cluster}/{one.name}" == wanted]
    with_replicas = [one for one in view.groups if one.replicas]
    found = named or [one for one in view.unhealthy if one.replicas] or with_replicas or list(view.groups)
    return found[0] if found else None


def _messages(count: float | None) -> str:
    return count_text(None) if count is None else f"{int(count):,} msg"


def _seconds(value: float | None) -> str:
    return duration_text(None if value is None else value * 1000)


PAGE = Page("/replication", "Replication", "sync_alt", "r", build)
