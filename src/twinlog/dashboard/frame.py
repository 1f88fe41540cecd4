"""What all pages share: navigation, title, light and dark, shortcuts, errors, and the end of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui
from nicegui.events import KeyEventArguments

from twinlog import __version__
from twinlog.base.clock import wall_clock_ms
from twinlog.dashboard.access import Access, Visitor
from twinlog.dashboard.clients import ReadingAdmin
from twinlog.dashboard.guard import VISITOR
from twinlog.dashboard.markup import Markup, icon, join, tag
from twinlog.dashboard.observer_service import Observer
from twinlog.dashboard.pipeline_files import PipelineReader
from twinlog.dashboard.settings import DashboardSettings
from twinlog.dashboard.theme import COOKIE, TOGGLE, head_links, is_dark
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.observe.units import duration_text

_STALE_MS = 10_000
_REFRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class Page:
    """One entry of the navigation; `build` makes its elements, and `key` is its shortcut."""

    path: str
    title: str
    icon: str
    key: str
    build: Callable[[PageContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page may use: who looks at it, and their account's view of the cluster."""

    settings: DashboardSettings
    access: Access
    visitor: Visitor
    query: Mapping[str, str]
    pipelines: PipelineReader

    @property
    def observer(self) -> Observer:
        return self.visitor.observer

    @property
    def admin(self) -> ReadingAdmin:
        """Signs with the visitor's account, and only reads; what changes something is given to `act`."""
        return self.visitor.observer.admin

    @property
    def read_only(self) -> bool:
        return self.visitor.read_only

    def is_open(self) -> bool:
        return self.access.is_open(self.visitor.token)

    def every_round(self, refresh: Callable[[], None]) -> None:
        """Call `refresh` now, and after each round of questions to the cluster, as long as the page is open."""
        seen = -1

        def look() -> None:
            nonlocal seen
            if self.observer.rounds != seen and self.is_open():
                seen = self.observer.rounds
                refresh()

        look()
        ui.timer(_REFRESH_S, look)


def register_pages(settings: DashboardSettings, access: Access) -> None:
    """Make every page known to NiceGUI."""
    from twinlog.dashboard.pages import PAGES  # pages import this module

    pipelines = PipelineReader(settings.pipelines)
    for page in PAGES:
        _register(page, PAGES, settings, access, pipelines)


def _register(
    page: Page, pages: tuple[Page, ...], settings: DashboardSettings, access: Access, pipelines: PipelineReader
) -> None:
    @ui.page(page.path, title=f"{page.title} · Twinlog", response_timeout=30)
    async def show(request: Request) -> None:
        visitor: Visitor = request.scope[VISITOR]
        context = PageContext(settings, access, visitor, dict(request.query_params), pipelines)
        ui.add_head_html(head_links())
        ui.dark_mode(is_dark(request.cookies.get(COOKIE)))
        await _draw(page, pages, context)


async def _draw(page: Page, pages: tuple[Page, ...], context: PageContext) -> None:
    with ui.element("div").classes("tl-shell"):
        ui.html(_navigation(page, pages, context), sanitize=False, tag="nav").classes("tl-nav").props(
            'aria-label="Pages"'
        )
        with ui.element("div").classes("tl-side"):
            with ui.element("header").classes("tl-top"):
                ui.html(tag("h1", page.title), sanitize=False)
                with ui.element("div").classes("tl-top-tools"):
                    live = LiveHtml().props('role="status"')
                    _tools(pages, context)
            problem = LiveHtml().classes("tl-problem-place").props('role="alert"')
            with ui.element("div").classes("tl-main") as main:
                main.props('id="content" tabindex="-1"')
                await page.build(context)
    ui.skip_link("Skip to content", target=main)
    context.every_round(lambda: problem.show(_problem(context)))

    def tick() -> None:
        if not context.is_open():
            ui.navigate.to("/login")
            return
        live.show(_liveness(context))

    tick()
    ui.timer(_REFRESH_S, tick)


def _tools(pages: tuple[Page, ...], context: PageContext) -> None:
    shortcuts = _shortcuts(pages)
    ui.button(icon="keyboard", on_click=shortcuts.open).props('flat round dense aria-label="Keyboard shortcuts"')
    theme = ui.button(icon="contrast").props('flat round dense aria-label="Light or dark"')
    theme.on("click", js_handler=TOGGLE)
    if context.visitor.account and context.visitor.token is not None:
        form = tag(
            "form",
            tag("span", context.visitor.account, cls="tl-account"),
            tag("button", "Sign out", type="submit", cls="tl-link-button"),
            method="post",
            action="/logout",
        )
        ui.html(form, sanitize=False)

    def on_key(event: KeyEventArguments) -> None:
        if not event.action.keydown or event.action.repeat or event.modifiers.ctrl or event.modifiers.meta:
            return
        name = str(event.key.name)
        target = next((one.path for one in pages if one.key == name), None)
        if target is not None:
            ui.navigate.to(target)
        elif name == "?":
            shortcuts.open()
        elif name == "d":
            ui.run_javascript(f"({TOGGLE})()")
        elif name == "/":
            ui.run_javascript("document.querySelector('#content input')?.focus()")

    ui.keyboard(on_key, ignore=["input", "select", "textarea"])


def _shortcuts(pages: tuple[Page, ...]) -> ui.dialog:
    rows = [(one.key, one.title) for one in pages]
    rows += [("/", "Search"), ("d", "Light or dark"), ("?", "This list"), ("Tab", "Next control"), ("Esc", "Close")]
    with ui.dialog().props('aria-label="Keyboard shortcuts"') as dialog, ui.card().classes("tl-dialog"):
        lines = [join([tag("dt", tag("kbd", key)), tag("dd", what)]) for key, what in rows]
        ui.html(tag("h2", "Keyboard shortcuts") + tag("dl", *lines, cls="tl-keys"), sanitize=False)
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    return dialog


def _navigation(page: Page, pages: tuple[Page, ...], context: PageContext) -> Markup:
    links = [
        tag(
            "a",
            icon(one.icon),
            tag("span", one.title),
            href=one.path,
            aria_current="page" if one is page else None,
            title=f"{one.title} ({one.key})",
        )
        for one in pages
    ]
    mode = tag("p", "read-only", cls="tl-mode") if context.read_only else None
    names = tag("p", context.settings.name_servers)
    about = tag("div", mode, tag("p", f"Twinlog {__version__}"), names, cls="tl-about")
    brand = tag("a", tag("span", cls="tl-mark", aria_hidden="true"), tag("span", "Twinlog"), href="/", cls="tl-brand")
    return join([brand, tag("div", *links, cls="tl-links"), about])


def _liveness(context: PageContext) -> Markup:
    view = context.observer.view
    if view is None:
        return tag("span", "asking …", cls="tl-live tl-live-old")
    age_ms = wall_clock_ms() - view.at_ms
    if age_ms < _STALE_MS:
        return tag("span", "live", cls="tl-live", title="updated every few seconds")
    return tag("span", f"{duration_text(age_ms)} old", cls="tl-live tl-live-old")


def _problem(context: PageContext) -> Markup:
    view = context.observer.view
    if view is None or not view.error:
        return Markup("")
    known = " The brokers below are those that were registered before." if view.groups else ""
    return tag("div", icon("error"), tag("span", f"{view.error}.{known}"), cls="tl-problem")
