"""Pipeline: running and past data jobs, with their progress, last audit, and history of metadata."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, Part, join, tag
from twinlog.dashboard.pipeline_files import ArchiveView, AuditView, PipelinesView, SyncView
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import panel_title, pill, table, tile, tiles
from twinlog.observe.cluster.health import Level
from twinlog.observe.units import UNKNOWN, ago_text, bytes_text, count_text, duration_text, time_text

_EVERY_S = 3.0
_CHANGES_SHOWN = 50
_HOW = "twinlog dashboard --pipeline /data/archive --pipeline /data/replicas"
_AUDIT_LEVELS = {"equal": Level.OK, "not comparable": Level.WARNING}  # different: critical


async def build(context: PageContext) -> None:
    summary = LiveHtml()
    with ui.element("section").classes("tl-panel"):
        syncs = LiveHtml(tag("p", "Reading …", cls="tl-empty"))
    with ui.element("section").classes("tl-panel"):
        archives = LiveHtml()
    with ui.element("section").classes("tl-panel"):
        audits = LiveHtml()
    with ui.element("section").classes("tl-panel"):
        changes = LiveHtml()

    async def refresh() -> None:
        if not context.is_open():
            return
        view = await context.pipelines.view()
        summary.show(summary_markup(view, is_configured=bool(context.pipelines.directories)))
        syncs.show(syncs_markup(view.syncs, view.at_ms))
        archives.show(archives_markup(view.archives, view.at_ms))
        audits.show(audits_markup(view.audits, view.at_ms))
        changes.show(changes_markup(view.syncs))

    await refresh()
    ui.timer(_EVERY_S, refresh)


def summary_markup(view: PipelinesView, *, is_configured: bool) -> Markup:
    if not is_configured:
        how = tag("p", "Name the directories that jobs write to: ", tag("code", _HOW), cls="tl-muted")
        return tag("div", tag("h2", "No directory is given"), how, cls="tl-panel tl-note")
    running = sum(one.is_running for one in view.syncs) + sum(one.is_active for one in view.archives)
    copied = [state.lag_bytes for one in view.syncs for state in one.status.brokers]
    behind = None if any(one is None for one in copied) or not copied else sum(one or 0 for one in copied)
    last = max((one.audited_ms for audit in view.audits for one in audit.rows), default=None)
    jobs = len(view.syncs) + len(view.archives)
    parts = tiles(
        tile("Jobs", f"{running} of {jobs} run", f"copies: {len(view.syncs)}, archives: {len(view.archives)}"),
        tile("Behind", bytes_text(behind), "all copied brokers"),
        tile("Archived", f"{count_text(sum(one.rows for one in view.archives))} rows", "in their last runs"),
        tile("Last audit", ago_text(last, view.at_ms) if last else "none", time_text(last) if last else None),
    )
    problems = [
        tag("li", pill(Level.WARNING), tag("span", one, cls="tl-reason"), cls="tl-warning") for one in view.problems
    ]
    return parts + (tag("ul", *problems, cls="tl-alerts tl-below") if problems else Markup(""))


def syncs_markup(syncs: Sequence[SyncView], now_ms: int) -> Markup:
    """Each broker that is copied, with how far its copy is."""
    parts = [panel_title("Copies", "twinlog pipeline sync")]
    for one in syncs:
        status, state = one.status, _sync_state(one, now_ms)
        about = (
            f"tick {status.tick:,}, every {duration_text(status.every_ms)}, last {ago_text(status.written_ms, now_ms)}"
        )
        parts.append(tag("p", state, " ", tag("code", one.path), " ", tag("span", about, cls="tl-muted"), cls="tl-job"))
        rows: list[Sequence[Part]] = [
            (
                tag("span", broker.broker, cls="tl-name"),
                broker.address,
                _share(broker.replica_start, broker.replica_end, broker.master_end),
                bytes_text(broker.lag_bytes),
                duration_text(None if broker.lag_seconds is None else broker.lag_seconds * 1000),
                bytes_text(broker.copied_bytes),
                f"{broker.changes:,} rows",
                duration_text(broker.seconds * 1000),
                join([pill(Level.CRITICAL, "fails"), " ", tag("span", broker.error, cls="tl-reason")])
                if broker.error
                else pill(Level.OK, "in step" if broker.lag_bytes == 0 else "copying"),
            )
            for broker in status.brokers
        ]
        columns = ("Broker", "Master", "Copied", "Behind", "Old", "Last tick", "Metadata", "Took", "State")
        parts.append(table(columns, rows, caption=f"Brokers that {one.path} copies", numbers=columns[2:8]))
    return join(parts if syncs else [*parts, tag("p", "No copy is in these directories.", cls="tl-empty")])


def archives_markup(archives: Sequence[ArchiveView], now_ms: int) -> Markup:
    rows: list[Sequence[Part]] = [
        (
            join([tag("code", one.path), tag("div", f"{one.format}, from {one.source}", cls="tl-sub")]),
            UNKNOWN if one.batch is None else f"{one.batch:,}",
            f"{one.batches:,}",
            f"{one.rows:,} rows",
            bytes_text(one.bytes),
            join([f"{len(one.topics):,} topics", tag("div", ", ".join(list(one.topics)[:4]), cls="tl-sub")]),
            ago_text(one.committed_ms, now_ms),
            _archive_state(one),
        )
        for one in archives
    ]
    columns = ("Archive", "Last batch", "Batches", "Rows", "Size", "Topics", "Committed", "State")
    body = table(columns, rows, caption="Archives", numbers=columns[1:5], empty="No archive is in these directories.")
    return panel_title("Archives", "twinlog pipeline archive; batches, rows and size of the last run") + body


def audits_markup(audits: Sequence[AuditView], now_ms: int) -> Markup:
    rows: list[Sequence[Part]] = [
        (
            join([time_text(one.audited_ms), tag("div", ago_text(one.audited_ms, now_ms), cls="tl-sub")]),
            one.master,
            one.replica,
            bytes_text(one.compared_bytes),
            pill(_AUDIT_LEVELS.get(one.result, Level.CRITICAL), one.result),
        )
        for audit in audits
        for one in audit.rows
    ]
    columns = ("Time", "Master", "Replica", "Compared", "Result")
    body = table(columns, rows, caption="Audits", numbers=("Compared",), empty="No audit is in these directories.")
    return panel_title("Audits", "twinlog pipeline audit --to, the newest first") + body


def changes_markup(syncs: Sequence[SyncView]) -> Markup:
    found = sorted((one for sync in syncs for one in sync.changes), key=lambda one: -one.seen_ms)[:_CHANGES_SHOWN]
    rows: list[Sequence[Part]] = [
        (
            time_text(one.seen_ms),
            one.broker,
            one.kind,
            tag("span", one.key, cls="tl-mono"),
            _value(one.old),
            _value(one.new),
        )
        for one in found
    ]
    columns = ("Seen", "Broker", "Kind", "Key", "Before", "After")
    problem = next((one.changes_problem for one in syncs if one.changes_problem), "")
    body = table(columns, rows, caption="History of metadata", empty=problem or "No change has been recorded.")
    return panel_title("History of metadata", f"the newest {_CHANGES_SHOWN} changes that copies recorded") + body


def _sync_state(one: SyncView, now_ms: int) -> Markup:
    if one.status.error:
        return pill(Level.CRITICAL, f"ended: {one.status.error}")
    if one.is_running:
        return pill(Level.OK, "running")
    if one.status.ended_ms is not None:
        return pill(Level.UNKNOWN, f"ended {ago_text(one.status.ended_ms, now_ms)}")
    return pill(Level.CRITICAL, f"no tick for {duration_text(now_ms - one.status.written_ms)}")


def _archive_state(one: ArchiveView) -> Part:
    if one.next_batch is not None:
        return pill(Level.OK if one.is_active else Level.WARNING, f"batch {one.next_batch:,} is begun")
    return pill(Level.OK, "active") if one.is_active else pill(Level.UNKNOWN, "idle")


def _share(start: int, end: int, master_end: int) -> Part:
    """How much of the master's log the copy has, as a number and in bytes."""
    if master_end <= start:
        return bytes_text(max(0, end - start))
    share = min(1.0, max(0, end - start) / (master_end - start))
    return join([f"{100 * share:.0f} %", tag("div", bytes_text(end - start), cls="tl-sub")])


def _value(text: str | None) -> Part:
    return tag("span", "—", cls="tl-muted") if text is None else tag("span", text[:300], cls="tl-mono tl-clip")


PAGE = Page("/pipeline", "Pipeline", "account_tree", "p", build)
