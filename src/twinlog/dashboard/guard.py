"""Checks every request before anything else sees it: its host, its origin, and who sent it.

Without accounts, this machine's user may administer, so another page in the same browser must not: neither by a form or
a WebSocket (its Origin differs), nor by a name of its own that leads to 127.0.0.1 (its Host differs).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twinlog.dashboard.access import Access
from twinlog.dashboard.settings import DashboardSettings

VISITOR = "twinlog.visitor"  # in the scope of a request
_OPEN_PATHS = ("/login", "/static/", "/_nicegui/", "/favicon.ico", "/health")
_SOCKETS = "/_nicegui_ws/"
_FOREIGN = 4403  # close code of a WebSocket
# Vue compiles templates in the browser, hence eval; nothing is loaded from anywhere else.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, a form's Origin would be null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def cookie_name(port: int) -> str:
    """Browsers send cookies to all ports of a host, so the name has the port."""
    return f"twinlog_session_{port}"


class Guard:
    """An ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, access: Access, settings: DashboardSettings, port: int) -> None:
        self._app, self._access = app, access
        self._cookie = cookie_name(port)
        self._names = _host_names(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        problem = self._problem(scope, headers)
        if problem is not None:
            await self._refuse(scope, receive, send, problem)
            return
        visitor = self._access.visitor(read_cookie(headers, self._cookie))
        if visitor is None and not scope["path"].startswith(_OPEN_PATHS):
            await self._ask_to_sign_in(scope, receive, send)
            return
        scope[VISITOR] = visitor

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message, scope["path"])
            await send(message)

        await self._app(scope, receive, send_guarded)

    def _problem(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Why this request does not come from a page of ours."""
        host = headers.get("host", "")
        if not is_own_host(host, self._names):
            return f"this dashboard is not {host[:200]!r}; use the address that it printed at its start"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f"a request from {origin[:200]!r} is not answered here"
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if changes and origin is None:
            return "a request that may change something has to name its Origin"
        if scope["path"].startswith(_SOCKETS) and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "a connection from another site is not answered here"
        return None

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, problem: str) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _FOREIGN, "reason": problem[:120]})
            return
        await PlainTextResponse(problem + "\n", status_code=403, headers=_HEADERS)(scope, receive, send)

    async def _ask_to_sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] == "websocket" or path.startswith(_SOCKETS):
            await self._refuse(scope, receive, send, "sign in first")
            return
        target = "/login" if path == "/" else f"/login?next={quote(path)}"
        await RedirectResponse(target, status_code=303, headers=_HEADERS)(scope, receive, send)


def is_own_host(header: str, names: Iterable[str]) -> bool:
    """Whether a Host header is an address, or one of our names: another name may belong to a stranger's page."""
    try:
        host = urlsplit(f"//{header}").hostname
    except ValueError:
        return False
    if not host:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host in names
    return True


def read_cookie(headers: Mapping[str, str], name: str) -> str | None:
    try:
        found: Any = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def _host_names(settings: DashboardSettings) -> frozenset[str]:
    own = {"localhost", settings.host.lower()}
    if not settings.is_local:
        own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own)


def _add_headers(message: Message, path: str) -> None:
    given = {key.lower() for key, _ in message["headers"]}
    added = dict(_HEADERS)
    if not path.startswith(("/_nicegui/", "/static/")):
        added["cache-control"] = "no-store"
    message["headers"] = [
        *message["headers"],
        *((key.encode(), value.encode()) for key, value in added.items() if key.encode() not in given),
    ]
