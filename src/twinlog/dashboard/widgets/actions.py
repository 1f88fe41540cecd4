"""Buttons that change something: they ask first, are refused in read-only mode, and say how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.access import SessionEnded
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.markup import tag
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
Work = Callable[[Changer], Awaitable[str]]


def action_button(context: PageContext, label: str, icon: str, work: Callable[[], Awaitable[None]]) -> ui.button | None:
    """A button for something that changes the cluster; None in read-only mode, where there is none."""
    if context.read_only:
        return None
    return ui.button(label, icon=icon, on_click=work).props("outline no-caps")


async def confirm(title: str, sentences: Sequence[str], label: str, *, is_dangerous: bool = False) -> bool:
    """Ask in a dialog that names what will happen; the focus is on Cancel."""
    with ui.dialog().props("persistent") as dialog, ui.card().classes("tl-dialog"):
        # Not as text of properties: a quote in a broker's name would end it, and what follows may be code.
        dialog.props["aria-label"] = title
        body = [tag("li", one) for one in sentences]
        ui.html(tag("h2", title) + tag("ul", *body), sanitize=False)
        with ui.row().classes("tl-dialog-buttons"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
            color = "negative" if is_dangerous else "primary"
            ui.button(label, on_click=lambda: dialog.submit(True)).props(f"unelevated no-caps color={color}")
    try:
        return bool(await dialog)
    finally:
        dialog.delete()


async def act(context: PageContext, what: str, work: Work) -> bool:
    """Give `work` the means to change something, and show the sentence that it returns; whether it succeeded.

    A failure is shown with its reason.
    """
    try:
        async with context.access.changer(context.visitor) as changer:
            done = await work(changer)
    except SessionEnded:
        ui.navigate.to("/login")
        return False
    except (*REQUEST_FAILURES, OSError) as error:
        show_error(f"{what}: {error}")
        return False
    log.info("changed by the dashboard", what=what, account=context.visitor.account or "(no accounts)")
    ui.notify(done, type="positive", position="top", timeout=6_000)
    context.observer.look_now()
    return True


def show_error(text: str) -> None:
    """Stays until it is closed."""
    ui.notify(text, type="negative", position="top", timeout=0, close_button="Close", multi_line=True)
