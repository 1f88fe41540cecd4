"""The page on which people sign in: a plain form, so the secret goes over one POST and is in no page or address."""

from __future__ import annotations

from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.theme import plain_document


def login_html(problem: str, target: str, theme: str | None) -> str:
    """The whole document; `target` is the page that was asked for."""
    form = tag(
        "form",
        tag("h1", "Twinlog"),
        tag("p", "The brokers use accounts. Sign in with yours; every request is signed with its key.", cls="tl-muted"),
        tag("p", problem, cls="tl-login-problem", role="alert") if problem else None,
        _field("Access key", "access_key", "text", "username"),
        _field("Secret key", "secret_key", "password", "current-password"),
        tag("input", type="hidden", name="next", value=target),
        tag("button", "Sign in", type="submit", cls="tl-login-button"),
        method="post",
        action="/login",
        cls="tl-login-form",
    )
    return plain_document("Sign in", form, theme)


def _field(label: str, name: str, kind: str, complete: str) -> Markup:
    return tag(
        "label",
        tag("span", label),
        tag("input", type=kind, name=name, autocomplete=complete, required=True, maxlength=256),
        cls="tl-login-field",
    )


def safe_target(target: str) -> str:
    """A path of ours; anything else becomes the first page."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\", "/login")) else "/"
