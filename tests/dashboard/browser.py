"""A real browser, and the dashboard as a process, for tests of pages."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.processes import Server, free_port

TWINLOG = [sys.executable, "-m", "twinlog.cli.main"]
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 30_000  # for a state that comes by itself; a busy machine is slow
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]
_TRANSITIONS_ENDED = """() => Promise.all(document.getAnimations()
    .filter(one => one.effect.getComputedTiming().iterations !== Infinity)
    .map(one => one.finished.catch(() => {})))"""


@functools.cache
def chromium() -> str:
    """The path of a Chromium; installed by apt-get where we may, else the test skips in one line."""
    pytest.importorskip("playwright")
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 600}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["apt-get", "update"], **quiet)
            install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
            subprocess.run(install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **quiet)
        found = _find()
    if found is None:
        why = "no Chromium: install it (apt-get install chromium) to run the tests of pages"
        if os.environ.get("TWINLOG_REQUIRE_INTEROP") == "1":
            pytest.fail(f"{why} (TWINLOG_REQUIRE_INTEROP=1 forbids skipping)", pytrace=False)
        pytest.skip(why)
    return found


def _find() -> str | None:
    return next((path for path in map(shutil.which, CHROMIUM_NAMES) if path), None)


class Dashboard(Server):
    """`twinlog dashboard` as a process; `url` is its first page."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"


def start_dashboard(home: Path, name_servers: str, *options: str, env: dict[str, str] | None = None) -> Dashboard:
    port = free_port()
    command = [*TWINLOG, "dashboard", "-n", name_servers, "--port", str(port), "--no-open", *options]
    server = Dashboard(command, home=home, port=port, ready="Twinlog dashboard of", env=env or {})
    server.wait_ready()
    return server


@contextlib.contextmanager
def running_browser() -> Iterator[Any]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def new_page(
    browser: Any, *, dark: bool = False, width: int = 1280, height: int = 900, **options: Any
) -> Iterator[Any]:
    """A tab of its own; an error in its console, or a request to another host, fails the test."""
    scheme = "dark" if dark else "light"
    with browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        foreign: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: _note_foreign(request.url, foreign))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.errors = errors
        yield page
        assert not foreign, f"requests left the machine: {foreign}"
        assert not errors, f"the browser's console has errors: {errors}"


def serious_faults(page: Any) -> list[str]:
    """What axe finds that is serious or critical: rule, and the first elements."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate(_TRANSITIONS_ENDED)  # amid one, colors are not those of the page
    found = json.loads(json.dumps(Axe().run(page).response))["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def visit_until(page: Any, url: str, text: str, tries: int = 10) -> None:
    """Open a page that does not follow the cluster until it has the text: a busy broker may answer too late for it."""
    for left in reversed(range(tries)):
        page.goto(url)
        if _appears(page.locator("#content").get_by_text(text, exact=True).first, WAIT_MS if not left else 3_000):
            return
    raise AssertionError(f"{url} does not show {text!r}: {text_of(page, '#content')[:500]}")


def _appears(found: Any, ms: int) -> bool:
    from playwright.sync_api import TimeoutError as NotThere

    try:
        found.wait_for(timeout=ms)
    except NotThere:
        return False
    return True


def text_of(page: Any, selector: str) -> str:
    """The text of an element in one line."""
    return re.sub(r"\s+", " ", page.locator(selector).inner_text())


def _note_foreign(url: str, foreign: list[str]) -> None:
    if not re.match(r"(https?|wss?)://(127\.0\.0\.1|localhost)[:/]|data:|blob:|about:", url):
        foreign.append(url)
