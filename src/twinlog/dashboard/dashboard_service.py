"""Serves the dashboard: one web server, one observer for each account in use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.staticfiles import StaticFiles

from twinlog.dashboard.access import Access, SignInFailed
from twinlog.dashboard.clients import reading_admin
from twinlog.dashboard.frame import register_pages
from twinlog.dashboard.guard import Guard, cookie_name
from twinlog.dashboard.login_page import login_html, safe_target
from twinlog.dashboard.observer_service import Observer, probe_accounts
from twinlog.dashboard.settings import DashboardSettings, check_exposure
from twinlog.dashboard.theme import COOKIE, FAVICON, STATIC, not_found_html
from twinlog.net.errors import CannotListen
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_BODY_BYTES_MAX = 16 * 1024
_SESSIONS_CHECK_S = 30.0


class DashboardService:
    """One per process: NiceGUI keeps its pages in the process."""

    def __init__(self, settings: DashboardSettings, on_ready: Callable[[str], None] = lambda url: None) -> None:
        self._settings, self._on_ready = settings, on_ready

    async def run(self) -> None:
        """Serve until cancelled."""
        settings = self._settings
        async with reading_admin(settings, settings.options.credentials) as admin:
            needs_login = await probe_accounts(admin)
        warning = check_exposure(settings, needs_login)
        if warning is not None:
            log.warning(warning)
        with contextlib.closing(_listen(settings.host, settings.port)) as listening:
            port = listening.getsockname()[1]
            async with asyncio.TaskGroup() as tasks:
                access = Access(settings, lambda observer: _start(tasks, observer))
                access.begin(login_required=bool(needs_login))
                config = _config(make_app(settings, access, port), settings)
                tasks.create_task(_end_sessions(access), name="sessions")
                await _serve(_Server(config, lambda: self._on_ready(settings.url(port))), listening)


def make_app(settings: DashboardSettings, access: Access, port: int) -> FastAPI:
    """The application: our few plain routes, then NiceGUI's; the guard is around all of them."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/static", StaticFiles(directory=STATIC))
    cookie = cookie_name(port)

    @app.get("/health")
    def health() -> JSONResponse:
        return JSONResponse({"status": "up"})

    @app.get("/login")
    def show_login(request: Request) -> Response:
        target = safe_target(request.query_params.get("next", "/"))
        if access.visitor(request.cookies.get(cookie)) is not None:
            return RedirectResponse(target, status_code=303)
        return HTMLResponse(login_html("", target, request.cookies.get(COOKIE)))

    @app.post("/login")
    async def sign_in(request: Request) -> Response:
        fields = await _form(request)
        target = safe_target(fields.get("next", "/"))
        peer = request.client.host if request.client is not None else ""
        try:
            token = await access.sign_in(fields.get("access_key", "").strip(), fields.get("secret_key", ""), peer)
        except SignInFailed as problem:
            return HTMLResponse(login_html(str(problem), target, request.cookies.get(COOKIE)), status_code=401)
        answer = RedirectResponse(target, status_code=303)
        secure = settings.certificate is not None
        answer.set_cookie(cookie, token, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    @app.post("/logout")
    def sign_out(request: Request) -> Response:
        access.sign_out(request.cookies.get(cookie))
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(cookie, path="/")
        return answer

    register_pages(settings, access)
    ui.run_with(
        app, title="Twinlog", favicon=FAVICON, dark=None, language="en-US", tailwind=False, show_welcome_message=False
    )
    nicegui_app.add_exception_handler(404, _not_found)  # NiceGUI's own page has no way back, and no name for the error
    app.add_middleware(Guard, access=access, settings=settings, port=port)
    return app


def _not_found(request: Request, _: Exception) -> Response:
    return HTMLResponse(not_found_html(request.url.path, request.cookies.get(COOKIE)), status_code=404)


async def _serve(server: _Server, listening: socket.socket) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="pages")
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True  # open pages are closed after a second
        with contextlib.suppress(asyncio.CancelledError):
            await serving


class _Server(uvicorn.Server):
    """Tells when it serves; signals are the command's business."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: FastAPI, settings: DashboardSettings) -> uvicorn.Config:
    for name in ("uvicorn.error", "nicegui"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # addresses of pages may hold keys of messages
        server_header=False,
        proxy_headers=False,  # else whoever is on this machine chooses the address that attempts are counted for
        timeout_graceful_shutdown=1,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.certificate_key,
        ws_max_size=4 * 1024 * 1024,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as problem:
        raise CannotListen(host, port, problem, "--port") from problem


def _start(tasks: asyncio.TaskGroup, observer: Observer) -> Callable[[], None]:
    task = tasks.create_task(observer.run(), name="observer")

    def stop() -> None:
        task.cancel()

    return stop


async def _end_sessions(access: Access) -> None:
    while True:
        await asyncio.sleep(_SESSIONS_CHECK_S)
        access.end_old_sessions()


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form; a large body is cut, and then its fields are not valid."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            return {}
    return {key: values[0] for key, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()}
