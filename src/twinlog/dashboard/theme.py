"""Light and dark: what the browser remembers, and the links to our styles."""

from __future__ import annotations

from pathlib import Path

from twinlog import __version__
from twinlog.dashboard.markup import Markup, tag

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
