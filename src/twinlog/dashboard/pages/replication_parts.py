"""The Replication page's markup: master and replicas drawn, versions, differences, history. No I/O, no elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinlog.dashboard.markup import Markup, Part, icon, join, tag
from twinlog.dashboard.observer_service import MetadataChange
from twinlog.dashboard.pages.roles import role_text
from twinlog.dashboard.widgets.parts import level_class, panel_title, pill, table
from twinlog.failover.records import History as FailoverRow
from twinlog.observe.cluster.cluster_view import BrokerView, GroupView
from twinlog.observe.cluster.health import Level
from twinlog.observe.cluster.history import Event
from twinlog.observe.cluster.replica_view import ReplicaView, Version
from twinlog.observe.replicas.metadata_rows import Differences
from twinlog.observe.units import UNKNOWN, ago_text, byte_rate_text, bytes_text, count_text, duration_text, time_text
from twinlog.replication.metadata.snapshots import COMPARED

_SHOWN_MAX = 50
_VERSION_COLUMNS = ("Kind", "Master has", "Replica has", "Master's version", "Replica's version", "Last sync", "State")


def tabs_markup(links: Iterable[tuple[str, str, Level, bool]], label: str) -> Markup:
    """(text, target, level, whether it is the one that is shown)"""
    parts = [
        tag(
            "a",
            tag("span", cls=f"tl-dot tl-dot-{level_class(level)}", aria_hidden="true"),
            text,
            href=target,
            aria_current="true" if is_shown else None,
        )
        for text, target, level, is_shown in links
    ]
    return tag("nav", *parts, cls="tl-tabs", aria_label=label)


def pair_markup(group: GroupView, rates: dict[str, float | None]) -> Markup:
    """Master and replicas, and what goes from one to the others; `rates` are bytes a second by address."""
    master, rows = group.master, max(1, len(group.replicas))
    parts = [_master_node(group, master, rows)]
    brokers = {one.address: one for one in group.brokers}
    for replica in group.replicas:
        parts += [_wire(replica, rates.get(replica.address)), _replica_node(replica, brokers[replica.address])]
    if not group.replicas:
        parts.append(tag("p", "There is no replica: its messages are lost with its disk.", cls="tl-empty"))
    title = join([tag("span", f"{group.cluster} / {group.name}"), " "])
    state = join([pill(group.health.level), " ", tag("span", group.health.reason)])
    return panel_title(title) + tag("p", state, cls="tl-group-state") + tag("div", *parts, cls="tl-pair")


def versions_markup(found: Differences, replica: ReplicaView, now_ms: int) -> Markup:
    """Both sides of each kind of metadata."""
    said = {one.kind: one for one in replica.metadata}
    rows: list[Sequence[Part]] = []
    for kind in COMPARED:
        name, status = kind.name, said.get(kind.name)
        ours, theirs = found.master.version(name), found.replica.version(name)
        differing = found.count_of(name)
        state: Part = pill(Level.OK, "equal")
        if name in (*found.master.missing, *found.replica.missing):
            state = pill(Level.UNKNOWN, "not given")
        elif differing:
            state = pill(Level.WARNING, f"{count_text(differing)} differ")
        if status is not None and status.error:
            state = join([pill(Level.CRITICAL, "fails"), tag("div", status.error, cls="tl-reason")])
        changed = (
            "" if status is None else f"{count_text(status.changes)} changes, {count_text(status.failures)} failures"
        )
        rows.append(
            (
                tag("span", name, cls="tl-name"),
                _rows(found.master.rows(name)),
                _rows(found.replica.rows(name)),
                _version(ours),
                _version(theirs),
                join([ago_text(status.synced_ms if status else None, now_ms), tag("div", changed, cls="tl-sub")]),
                state,
            )
        )
    note = f"{found.master.address} and {found.replica.address}, asked {ago_text(found.master.at_ms, now_ms)}"
    body = table(_VERSION_COLUMNS, rows, caption="Metadata of master and replica", numbers=_VERSION_COLUMNS[1:3])
    return panel_title("Metadata", note) + body


def differences_markup(found: Differences) -> Markup:
    """Row by row, what the two brokers do not agree on."""
    rows = [
        (one.kind, tag("span", one.key, cls="tl-mono"), one.field, _value(one.left), _value(one.right))
        for one in found.rows
    ]
    note = f"{count_text(found.count)} rows differ" if found.count else "no row differs"
    if found.count > len(found.rows):
        note += f"; the first {len(found.rows)} are shown"
    body = table(
        ("Kind", "Key", "Field", "Master", "Replica"),
        rows,
        caption="Rows in which master and replica differ",
        empty="Master and replica have the same topics, groups and offsets.",
    )
    return panel_title("Differences", note) + body


def history_markup(events: Sequence[Event], failovers: Sequence[FailoverRow], note: str) -> Markup:
    """Who was master, since when and why; then what this dashboard saw."""
    parts = [panel_title("Failover history", note)]
    if failovers:
        rows = [
            (
                count_text(one.epoch),
                time_text(one.at_ms),
                one.address,
                count_text(one.start),
                "nothing" if one.lost is None else f"bytes {one.lost[0]:,} to {one.lost[1]:,}",
                one.reason,
            )
            for one in failovers[:_SHOWN_MAX]
        ]
        columns = ("Epoch", "Since", "Master", "From byte", "Lost", "Reason")
        parts.append(table(columns, rows, caption="Masters of this group", numbers=("Epoch", "From byte")))
    seen = [(time_text(one.at_ms), pill(one.level), one.text) for one in list(reversed(events))[:_SHOWN_MAX]]
    if seen or not failovers:
        empty = "Nothing has changed since the dashboard was started."
        parts.append(table(("Time", "State", "What was seen"), seen, caption="Changes of this group", empty=empty))
    return join(parts)


def changes_markup(changes: Sequence[MetadataChange]) -> Markup:
    """Rows of topics and groups that were seen to change, the newest first."""
    rows = [
        (time_text(one.at_ms), one.address, one.row.kind, one.row.key, one.row.field, _change(one))
        for one in list(reversed(changes))[:_SHOWN_MAX]
    ]
    columns = ("Time", "Broker", "Kind", "Key", "Field", "Change")
    empty = "No topic and no group has changed while a page like this was open."
    return panel_title("What changed", "topics and groups") + table(
        columns, rows, caption="Changes of metadata", empty=empty
    )


def _master_node(group: GroupView, master: BrokerView | None, rows: int) -> Markup:
    style = f"grid-row:1 / span {rows}"
    if master is None:
        inner = [tag("h3", "No master"), tag("p", "Nobody takes messages.", cls="tl-muted")]
        return tag("div", *inner, cls="tl-node tl-node-critical", style=style)
    facts: list[tuple[str, Part]] = [
        ("Software", master.software),
        ("Log end", _offset(master.log_end)),
        ("Log begins", _offset(master.log_start)),
        ("Epoch", UNKNOWN if group.epoch is None else group.epoch),
        ("Failover", "automatic, by etcd" if group.has_failover else "by hand"),
    ]
    return _node(role_text(0, master.role), master.address, master.health.level, facts, style)


def _replica_node(replica: ReplicaView, broker: BrokerView) -> Markup:
    in_sync = {True: "yes", False: "no", None: UNKNOWN}[replica.in_sync]
    facts: list[tuple[str, Part]] = [
        ("Software", broker.software),
        ("In sync", in_sync),
        ("Acknowledged", _offset(replica.acked)),
        ("Log end", _offset(replica.log_end)),
        ("Joined its master", _times(replica.reconnects)),
    ]
    name = role_text(replica.broker_id, broker.role)
    node = _node(name, replica.address, replica.health.level, facts, None)
    reason = tag("p", replica.health.reason, cls="tl-reason") if not replica.health.is_ok else None
    return tag("div", node, reason)


def _node(name: str, address: str, level: Level, facts: Sequence[tuple[str, Part]], style: str | None) -> Markup:
    head = tag("div", tag("h3", name), pill(level), cls="tl-node-head")
    lines = [join([tag("dt", key), tag("dd", UNKNOWN if value is None else value)]) for key, value in facts]
    return tag(
        "div",
        head,
        tag("div", address, cls="tl-sub"),
        tag("dl", *lines),
        cls=f"tl-node tl-node-{level_class(level)}",
        style=style,
    )


def _wire(replica: ReplicaView, rate: float | None) -> Markup:
    """The link: how far behind, how fast, and whether anything goes through."""
    if replica.lag_bytes is None:
        lag = "lag unknown"
    else:
        lag = "nothing missing" if replica.lag_bytes == 0 else f"{bytes_text(replica.lag_bytes)} behind"
    messages = f"{count_text(replica.lag_messages, exact=replica.lag_messages_exact)} messages"
    more = f"{messages}, {duration_text(replica.lag_ms)}" if replica.lag_bytes is not None else ""
    return tag(
        "div",
        tag("strong", lag),
        tag("span", more) if more else None,
        tag("span", cls="tl-wire-line", aria_hidden="true"),
        tag("span", f"transfer {byte_rate_text(rate)}"),
        cls=f"tl-wire tl-wire-{level_class(replica.health.level)}",
    )


def _offset(value: int | None) -> Part:
    if value is None:
        return UNKNOWN
    return join([f"{value:,}", " ", tag("span", f"({bytes_text(value)})", cls="tl-sub")])


def _rows(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,} rows"


def _version(version: Version | None) -> Part:
    if version is None:
        return None
    return join([f"{version.counter:,}", tag("div", time_text(version.timestamp_ms), cls="tl-sub")])


def _value(text: str | None) -> Part:
    return tag("span", "missing", cls="tl-unknown-value") if text is None else tag("span", text, cls="tl-mono")


def _change(change: MetadataChange) -> Markup:
    before, after = change.row.left, change.row.right
    if before is None:
        return join([icon("add"), " ", _value(after)])
    return join([tag("span", before, cls="tl-mono tl-old"), " → ", _value(after)])


def _times(count: int | None) -> str | None:
    return "once" if count == 1 else None if count is None else f"{count_text(count)} times"
