"""Move a group to another place in a topic; first it is shown what each queue's offset becomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from nicegui import ui

from twinlog.client import BadArgument, MessageQueue
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.widgets.actions import act
from twinlog.dashboard.widgets.forms import read_time
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import table
from twinlog.observe.groups.offset_reset import NEWEST, OFFSET, OLDEST, TIME, ResetRow, ResetTarget, apply, preview
from twinlog.observe.units import count_text

TARGETS = {
    NEWEST: "the newest message (skip the backlog)",
    OLDEST: "the oldest message (consume everything again)",
    TIME: "a point in time",
    OFFSET: "an offset of one queue",
}
_COLUMNS = ("Broker", "Queue", "Oldest", "Next", "Offset now", "Becomes", "Change")


async def reset_group(context: PageContext, group: str, topics: Sequence[str], *, members: int) -> bool:
    """Whether the group was moved."""
    dialog = _ResetDialog(context, group, topics, members)
    return await dialog.run()


class _ResetDialog:
    def __init__(self, context: PageContext, group: str, topics: Sequence[str], members: int) -> None:
        self._context, self._group = context, group
        self._previewed: tuple[str, ResetTarget] | None = None  # what the Reset button does
        with (
            ui.dialog().props('persistent aria-label="Reset offsets"') as self._dialog,
            ui.card().classes("tl-dialog tl-dialog-wide"),
        ):
            note = f"Consumers that are connected ({members}) go on there." if members else ""
            ui.html(tag("h2", f"Reset the offsets of {group}") + tag("p", note, cls="tl-muted"), sanitize=False)
            self._topic = self._select("Topic", {one: one for one in topics}, topics[0])
            self._kind = self._select("Go to", TARGETS, NEWEST)
            hour_ago = (datetime.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
            self._time = ui.input("Time, as this server's clock has it", value=hour_ago)
            self._time.props('outlined dense type="datetime-local" step="1"').classes("tl-field")
            self._time.bind_visibility_from(self._kind, "value", value=TIME)
            self._queue = ui.input("Queue, as broker:number", value="").props("outlined dense").classes("tl-field")
            self._offset = ui.number("Offset", value=0, min=0, precision=0).props("outlined dense")
            self._offset.classes("tl-field")
            for one in (self._queue, self._offset):
                one.bind_visibility_from(self._kind, "value", value=OFFSET)
            self._shown = LiveHtml().props('role="status"')
            with ui.row().classes("tl-dialog-buttons"):
                ui.button("Cancel", on_click=lambda: self._dialog.submit(False)).props("flat no-caps")
                ui.button("Preview", on_click=self._preview).props("outline no-caps")
                self._apply = ui.button("Reset", on_click=self._reset).props("unelevated no-caps color=negative")
                self._apply.disable()
        for one in (self._topic, self._kind, self._time, self._queue, self._offset):
            one.on_value_change(self._changed)

    async def run(self) -> bool:
        try:
            return bool(await self._dialog)
        finally:
            self._dialog.delete()

    def _select(self, label: str, choices: dict[str, str], value: str) -> Any:
        made = ui.select(choices, label=label, value=value)
        return made.props("outlined dense").classes("tl-field")

    def _changed(self) -> None:
        """What was shown is not what would be done any more."""
        self._previewed = None
        self._apply.disable()
        self._shown.show(Markup(""))

    async def _preview(self) -> None:
        self._changed()
        try:
            topic, target = str(self._topic.value), self._target()
            rows = await preview(self._context.admin, self._group, topic, target)
            if (topic, target) != (str(self._topic.value), self._target()):
                return  # another choice was made meanwhile
        except REQUEST_FAILURES as error:
            self._shown.show(tag("p", str(error), cls="tl-result tl-critical"))
            return
        self._previewed = (topic, target)
        self._shown.show(preview_markup(rows))
        self._apply.enable()

    async def _reset(self) -> None:
        if self._previewed is None:  # pressed twice
            return
        (topic, target), self._previewed = self._previewed, None
        self._apply.disable()

        async def work(changer: Changer) -> str:
            moved = await apply(changer.admin, self._group, topic, target)
            return f"Group {self._group} was moved in {topic}: {', '.join(_place(*one) for one in moved.items())}"

        if await act(self._context, f"reset offsets of {self._group} in {topic}", work):
            self._dialog.submit(True)

    def _target(self) -> ResetTarget:
        kind = str(self._kind.value)
        if kind == TIME:
            return ResetTarget(kind, timestamp_ms=read_time(str(self._time.value)))
        if kind == OFFSET:
            broker, _, number = str(self._queue.value).rpartition(":")
            if not broker or not number.isdecimal():
                raise BadArgument(f"queue {self._queue.value!r} is not of the form broker:number, such as broker-a:0")
            queue = MessageQueue(str(self._topic.value), broker, int(number))
            return ResetTarget(kind, queue=queue, offset=int(self._offset.value or 0))
        return ResetTarget(kind)


def _place(queue: MessageQueue, offset: int) -> str:
    return f"{queue.broker_name}:{queue.queue_id} to {count_text(offset)}"


def preview_markup(rows: Sequence[ResetRow]) -> Markup:
    cells = [
        (
            row.queue.broker_name,
            row.queue.queue_id,
            count_text(row.low),
            count_text(row.high),
            "none" if row.committed is None else count_text(row.committed),
            tag("strong", count_text(row.becomes)),
            change_text(row.change),
        )
        for row in rows
    ]
    skipped = sum(max(row.change or 0, 0) for row in rows)
    again = sum(max(-(row.change or 0), 0) for row in rows)
    words = [f"{count_text(skipped)} messages are skipped"] * bool(skipped)
    words += [f"{count_text(again)} messages are consumed again"] * bool(again)
    summary = tag("p", (", ".join(words) or "Nothing changes") + ".", cls="tl-result tl-warning")
    return table(_COLUMNS, cells, caption="What the offsets become", numbers=_COLUMNS[1:]) + summary


def change_text(change: int | None) -> str:
    if change is None:
        return "new"
    return "no change" if change == 0 else f"{change:+,}"
