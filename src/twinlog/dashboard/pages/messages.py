"""Messages: of a topic by time, by key or by id; one of them whole, with what became of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from twinlog.base.addresses import address_text
from twinlog.base.system_names import DLQ_PREFIX
from twinlog.client import BadArgument, Message, MessageQueue
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.dialogs.resend_dialogs import deliver_again, send_again
from twinlog.dashboard.frame import Page, PageContext
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.widgets.actions import action_button
from twinlog.dashboard.widgets.data_table import Column, DataTable
from twinlog.dashboard.widgets.forms import read_time
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.dashboard.widgets.parts import panel_title, table
from twinlog.observe.messages.body_view import first_line, forms_of, shown_as
from twinlog.observe.messages.message_text import message_data
from twinlog.observe.messages.messages import COUNT_MAX, Consumption, Found, consumptions, messages_between
from twinlog.observe.topics import is_dead_letter
from twinlog.observe.units import bytes_text, count_text, time_text
from twinlog.wire.errors import WireError
from twinlog.wire.values.message_id import parse_offset_message_id

TIME, KEY, ID = "time", "key", "id"
_BY = {TIME: "time", KEY: "key", ID: "message id"}
_NAMES_MAX = 500  # of topics that the field offers
_OF_BROKER_MAX = 64  # a broker gives no more messages with a key, unless its maxMsgsNumBatch was set
Row = tuple[MessageQueue, Message]


async def build(context: PageContext) -> None:
    query = context.query
    if all(query.get(one) for one in ("topic", "broker", "queue", "offset")):
        await _Detail(context).build()
        return
    await _Search(context).build()


class _Search:
    """The form, and what was found for the address of the page."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._topic = context.query.get("topic", "")
        self._rows: list[Row] = []

    async def build(self) -> None:
        query = self._context.query
        now = datetime.now()
        with ui.element("section").classes("tl-panel"), ui.element("form").classes("tl-form") as form:
            form.on("submit.prevent", self._go)
            names = await self._names()
            self._name = self._input("Topic", self._topic, autocomplete=names)
            self._by = ui.select(_BY, label="Find by", value=query["by"] if query.get("by") in _BY else TIME).props(
                "outlined dense"
            )
            self._begin = self._time("From", query.get("begin") or _local(now - timedelta(hours=1)))
            self._end = self._time("To", query.get("end") or _local(now + timedelta(minutes=1)))
            self._text = self._input("Key or id", query.get("text", ""))
            self._count = ui.number("At most", value=int(_digits(query.get("count"), 64)), min=1, max=COUNT_MAX)
            self._count.props("outlined dense")
            for one in (self._begin, self._end):
                one.bind_visibility_from(self._by, "value", value=TIME)
            self._text.bind_visibility_from(self._by, "value", backward=lambda by: by != TIME)
            ui.button("Find", icon="search").props('unelevated no-caps color=primary type="submit"')
        self._problem = LiveHtml()
        if self._topic:
            await self._show()
        else:
            self._problem.show(tag("p", "Name a topic to see its messages.", cls="tl-empty"))

    async def _show(self) -> None:
        try:
            found = await self._find()
        except REQUEST_FAILURES as error:
            self._problem.show(tag("p", str(error), cls="tl-result tl-critical"))
            return
        self._rows = list(found.messages)
        count = len(self._rows)
        note = f"{count_text(count)} message{'' if count == 1 else 's'}"
        note += ", the newest; there may be more" if found.is_cut else ""
        with ui.element("section").classes("tl-panel"):
            ui.html(panel_title(self._topic, note), sanitize=False)
            with ui.row().classes("tl-toolbar"):
                if self._rows:
                    ui.button("Export as JSON lines", icon="download", on_click=self._export).props("outline no-caps")
                    if is_dead_letter(self._topic):
                        action_button(self._context, "Deliver these again", "replay", self._deliver)
            shown = DataTable(
                (
                    Column("stored", "Stored", link_field="link"),
                    Column("body", "Body"),
                    Column("tags", "Tag"),
                    Column("keys", "Keys"),
                    Column("queue", "Queue"),
                    Column("offset", "Offset", is_number=True),
                    Column("size", "Size", is_number=True, sort_field="size_number"),
                    Column("retries", "Retries", is_number=True),
                    Column("id_", "Message id"),
                ),
                label="messages",
                empty="no message",
            )
            shown.show([message_row(queue, message) for queue, message in self._rows])

    async def _find(self) -> Found:
        query, admin = self._context.query, self._context.admin
        by, text = query.get("by", TIME), query.get("text", "").strip()
        count = int(_digits(query.get("count"), 64))
        if by == KEY:
            count = max(1, min(count, COUNT_MAX))
            rows = await admin.located_by_key(self._topic, _given(text, "a key"), count_max=count)
            of_brokers = Counter(queue.broker_name for queue, _ in rows)
            is_cut = len(rows) > count or max(of_brokers.values(), default=0) >= min(count, _OF_BROKER_MAX)
            return Found(tuple(reversed(rows[-count:])), is_cut)
        if by == ID:
            return Found((await self._by_id(_given(text, "an id")),), False)
        now = datetime.now()
        begin = read_time(query.get("begin") or _local(now - timedelta(hours=1)))
        end = read_time(query.get("end") or _local(now + timedelta(minutes=1)))
        if begin > end:
            raise BadArgument(f"the time from ({query.get('begin')}) is after the time to ({query.get('end')})")
        return await messages_between(admin, self._topic, begin, end, count)

    async def _by_id(self, text: str) -> Row:
        """An offset id names an address, which may be anybody's: only brokers of this cluster are asked."""
        admin, view = self._context.admin, self._context.observer.view
        found = await admin.located_by_unique_key(self._topic, text)
        if found:
            return found[-1]
        try:
            host, port, _ = parse_offset_message_id(text)
        except WireError as error:
            raise BadArgument(str(error)) from error
        address = address_text(host, port)
        names = [one.name for one in view.brokers if one.address == address] if view is not None else []
        if not names:
            raise BadArgument(f"no message has the id {text}, and no broker of this cluster is {address}")
        message = await admin.message_by_offset_id(text, self._topic)
        return MessageQueue(message.topic, names[0], message.queue_id), message

    async def _go(self) -> None:
        values = {
            "topic": str(self._name.value or "").strip(),
            "by": self._by.value,
            "count": int(self._count.value or 64),
        }
        if self._by.value == TIME:
            values |= {"begin": self._begin.value, "end": self._end.value}
        else:
            values |= {"text": self._text.value or ""}
        ui.navigate.to(f"/messages?{urlencode(values)}")

    async def _names(self) -> list[str]:
        try:
            return (await self._context.admin.topics())[:_NAMES_MAX]
        except REQUEST_FAILURES:
            return []

    def _export(self) -> None:
        lines = [json.dumps(message_data(message), ensure_ascii=False) for _, message in self._rows]
        name = "".join(one if one.isalnum() or one in "-_" else "_" for one in self._topic)
        ui.download.content("\n".join(lines) + "\n", f"{name}.jsonl", "application/x-ndjson")

    async def _deliver(self) -> None:
        await deliver_again(self._context, self._topic.removeprefix(DLQ_PREFIX), self._rows)

    def _input(self, label: str, value: str, autocomplete: list[str] | None = None) -> Any:
        return ui.input(label, value=value, autocomplete=autocomplete).props("outlined dense").classes("tl-grow")

    def _time(self, label: str, value: str) -> Any:
        return ui.input(label, value=value).props('outlined dense type="datetime-local" step="1" stack-label')


class _Detail:
    """One message, named by its queue and offset."""

    def __init__(self, context: PageContext) -> None:
        query = context.query
        self._context = context
        self._queue = MessageQueue(query["topic"], query["broker"], int(_digits(query["queue"], 0)))
        self._offset = int(_digits(query["offset"], 0))

    async def build(self) -> None:
        queue = self._queue
        back = f"/messages?topic={quote(queue.topic, safe='')}"
        place = f"{queue.topic}, {queue.broker_name} queue {queue.queue_id}, offset {self._offset}"
        ui.html(tag("a", "Messages", href=back) + tag("h2", place, cls="tl-subject"), sanitize=False).classes(
            "tl-crumbs"
        )
        try:
            message = await self._context.admin.message_at(queue, self._offset)
            if message is None:
                raise BadArgument(f"there is no message at offset {self._offset} of this queue any more")
        except REQUEST_FAILURES as error:
            ui.html(tag("p", str(error), cls="tl-result tl-critical"), sanitize=False)
            return
        with ui.row().classes("tl-toolbar tl-toolbar-bare"):
            ui.button("Download the body", icon="download", on_click=lambda: self._download(message)).props(
                "outline no-caps"
            )
            if is_dead_letter(queue.topic):
                group = queue.topic.removeprefix(DLQ_PREFIX)
                action_button(
                    self._context,
                    f"Deliver it to {group} again",
                    "replay",
                    lambda: _done(deliver_again(self._context, group, [(queue, message)])),
                )
            action_button(self._context, "Send again", "send", lambda: _done(send_again(self._context, message)))
        with ui.element("section").classes("tl-panel"):
            self._body(message)
        with ui.element("section").classes("tl-panel"):
            ui.html(facts_markup(message), sanitize=False)
        with ui.element("section").classes("tl-panel"):
            ui.html(properties_markup(message), sanitize=False)
        with ui.element("section").classes("tl-panel"):
            consumed = LiveHtml(panel_title("Groups") + tag("p", "Asking …", cls="tl-empty"))

        async def ask() -> None:
            try:
                consumed.show(consumption_markup(await consumptions(self._context.admin, queue, message)))
            except REQUEST_FAILURES as error:
                consumed.show(panel_title("Groups") + tag("p", str(error), cls="tl-result tl-critical"))

        ui.timer(0.1, ask, once=True)

    def _body(self, message: Message) -> None:
        forms = forms_of(message.body)
        ui.html(panel_title("Body", bytes_text(len(message.body))), sanitize=False)
        with ui.row().classes("tl-toolbar"):
            choice = ui.toggle(list(forms), value=forms[0]).props("no-caps unelevated dense padding='2px 14px'")
        shown = LiveHtml().classes("tl-body")

        def show() -> None:
            shown.show(tag("pre", shown_as(message.body, str(choice.value)), tabindex="0", aria_label="Body"))

        choice.on_value_change(show)
        show()

    def _download(self, message: Message) -> None:
        ui.download.content(message.body, f"{message.message_id}.bin", "application/octet-stream")


async def _done(work: Any) -> None:
    await work


def message_row(queue: MessageQueue, message: Message) -> dict[str, Any]:
    return {
        "id": f"{queue.broker_name}:{queue.queue_id}:{message.queue_offset}:{message.physical_offset}",
        "link": message_link(queue, message.queue_offset),
        "stored": time_text(message.store_timestamp),
        "id_": message.message_id,
        "tags": message.tags,
        "keys": " ".join(message.keys),
        "queue": f"{queue.broker_name}:{queue.queue_id}",
        "offset": message.queue_offset,
        "retries": message.reconsume_times,
        "size": bytes_text(len(message.body)),
        "size_number": len(message.body),
        "body": first_line(message.body),
    }


def facts_markup(message: Message) -> Markup:
    rows = [
        ("Message id", tag("code", message.message_id)),
        ("Offset id", tag("code", message.offset_message_id)),
        ("Stored", f"{time_text(message.store_timestamp)} at {address_text(*message.store_host)}"),
        ("Sent", f"{time_text(message.born_timestamp)} from {address_text(*message.born_host)}"),
        ("Tag", message.tags or "none"),
        ("Keys", " ".join(message.keys) or "none"),
        ("Retries before this", str(message.reconsume_times)),
        ("Size in the log", bytes_text(message.store_size)),
    ]
    return panel_title("Message") + table(("What", "Value"), rows, caption="Message")


def properties_markup(message: Message) -> Markup:
    rows = [(tag("code", name), value) for name, value in sorted(message.properties.items())]
    return panel_title("Properties") + table(("Name", "Value"), rows, caption="Properties", empty="It has none.")


def consumption_markup(found: Sequence[Consumption]) -> Markup:
    rows = []
    for one in found:
        dead = one.dead_letter
        rows.append(
            (
                tag("a", one.group, href=f"/groups?group={quote(one.group, safe='')}", cls="tl-name"),
                "consumed" if one.is_consumed else "not yet",
                "none" if one.committed is None else count_text(one.committed),
                ", ".join(time_text(retry.store_timestamp) for retry in one.retries) or "none",
                time_text(dead.store_timestamp) if dead is not None else "no",
            )
        )
    columns = ("Group", "This message", "Group's offset", "Retries, stored", "Dead letter")
    body = table(columns, rows, caption="Groups", numbers=("Group's offset",), empty="No group reads this topic.")
    return panel_title("Groups", "what became of it") + body


def message_link(queue: MessageQueue, offset: int) -> str:
    values = {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
    return f"/messages?{urlencode(values)}"


def _local(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def _digits(text: str | None, default: int) -> str:
    return text if text is not None and text.isdecimal() and len(text) < 19 else str(default)


def _given(text: str, what: str) -> str:
    if not text:
        raise BadArgument(f"give {what} to look for")
    return text


PAGE = Page("/messages", "Messages", "mail", "m", build)
