"""Text that changes while it is looked at. It is sent only when it differs, so a quiet page is quiet on the wire."""

from __future__ import annotations

from nicegui import ui

from twinlog.dashboard.markup import Markup


class LiveHtml(ui.html):
    """Holds markup without controls: what is replaced would lose the focus."""

    def __init__(self, content: Markup | None = None, tag: str = "div") -> None:
        super().__init__(content or "", sanitize=False, tag=tag)

    def show(self, content: Markup) -> None:
        assert isinstance(content, Markup), "only markup that was escaped is shown"
        if content != self.content:
            self.set_content(content)
