"""Light and dark: what the browser remembers, the links to our styles, and documents without NiceGUI."""

from __future__ import annotations

from pathlib import Path

from twinlog import __version__
from twinlog.dashboard.markup import Markup, join, tag

STATIC = Path(__file__).parent / "static"
COOKIE = "twinlog_theme"  # light or dark; without it, what the system prefers
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#2457d6"/>'
    '<rect x="7" y="8" width="7" height="16" rx="2" fill="#fff"/>'
    '<rect x="18" y="8" width="7" height="16" rx="2" fill="#fff" opacity=".6"/></svg>'
)
# Runs in the browser: the server need not know.
TOGGLE = f"""() => {{
    const dark = !document.body.classList.contains('body--dark');
    Quasar.Dark.set(dark);
    document.cookie = `{COOKIE}=${{dark ? 'dark' : 'light'}}; path=/; max-age=31536000; SameSite=Strict`;
}}"""


def head_links() -> Markup:
    return tag("link", rel="stylesheet", href=f"/static/dashboard.css?v={__version__}")


def is_dark(theme: str | None) -> bool | None:
    """What the cookie says; None leaves it to the system."""
    return {"dark": True, "light": False}.get(theme or "")


def theme_class(theme: str | None) -> str:
    return {True: "body--dark", False: "body--light", None: "tl-auto"}[is_dark(theme)]


def plain_document(title: str, main: Markup, theme: str | None) -> str:
    """A whole page that needs no script: sign in, and what does not exist."""
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("title", f"{title} · Twinlog"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            head_links(),
        ]
    )
    body = tag("body", tag("main", main, cls="tl-login"), cls=theme_class(theme))
    return Markup("<!doctype html>") + tag("html", tag("head", head), body, lang="en")


def not_found_html(path: str, theme: str | None) -> str:
    lines = tag("h1", "No such page"), tag("p", "The dashboard has no page ", tag("code", path), cls="tl-muted")
    box = tag("div", *lines, tag("a", "Go to the cluster", href="/"), cls="tl-login-form")
    return plain_document("No such page", box, theme)
