"""Who gets an answer at all: hosts, origins, sessions."""

import asyncio

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from twinlog.client import BrokerRefused, ClientOptions, Credentials
from twinlog.dashboard.access import Access, SignInFailed
from twinlog.dashboard.dashboard_service import _config
from twinlog.dashboard.guard import VISITOR, Guard, cookie_name
from twinlog.dashboard.login_page import login_html, safe_target
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.settings import DashboardRefused, DashboardSettings, check_exposure
from twinlog.observe.cluster.broker_groups import Group, Member

PORT = 8088
HOME = f"http://127.0.0.1:{PORT}"
SOCKETS = f"ws://127.0.0.1:{PORT}/_nicegui_ws"


class Clock:
    now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


async def _nothing():
    return None


class LooseAccess(Access):
    """Takes the account `ops` with the secret `good`, without asking a cluster."""

    async def _try_account(self, credentials):
        await asyncio.wait({asyncio.create_task(_nothing())})
        if credentials != Credentials("ops", "good"):
            raise SignInFailed("wrong")


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()
        return
    visitor = scope[VISITOR]
    await PlainTextResponse(f"hello {visitor.account if visitor else 'nobody'}")(scope, receive, send)


def guarded(*, login=False, clock=None, **more):
    settings = DashboardSettings(name_servers="127.0.0.1:1", **more)
    access = LooseAccess(settings, lambda observer: lambda: None, clock or Clock())
    access.begin(login_required=login)
    client = TestClient(Guard(application, access=access, settings=settings, port=PORT), base_url=HOME)
    return client, access


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (f"127.0.0.1:{PORT}", 200),
        (f"localhost:{PORT}", 200),
        (f"[::1]:{PORT}", 200),
        (f"stranger.example:{PORT}", 403),
        ("", 403),
    ],
)
def test_a_name_of_somebody_else_is_not_answered(host, status):
    """Such a name may lead to 127.0.0.1 while its page belongs to a stranger."""
    client, _ = guarded()
    assert client.get("/", headers={"host": host}).status_code == status


def test_another_site_can_neither_post_nor_open_a_socket():
    """Seen to fail when the Origin is not compared."""
    client, _ = guarded()
    assert client.post("/x", headers={"origin": HOME}).status_code == 200
    assert client.post("/x", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/x", headers={"origin": "http://127.0.0.1:9999"}).status_code == 403, "another port too"
    assert client.post("/x").status_code == 403
    with client.websocket_connect(f"{SOCKETS}/socket.io", headers={"origin": HOME}) as socket:
        assert socket.receive_text() == "hello"
    for headers in ({"origin": "http://evil.example"}, {}):
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect(f"{SOCKETS}/socket.io", headers=headers) as socket,
        ):
            socket.receive_text()
    cross = {"sec-fetch-site": "cross-site"}
    assert client.get("/_nicegui_ws/socket.io", headers=cross).status_code == 403


def test_answers_forbid_frames_and_requests_to_elsewhere():
    client, _ = guarded()
    headers = client.get("/").headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "default-src 'self'" in headers["content-security-policy"] and headers["cache-control"] == "no-store"


async def test_with_accounts_nothing_is_shown_before_signing_in_and_sessions_end():
    clock = Clock()
    client, access = guarded(login=True, clock=clock, session_idle_ms=1_000, session_ms_max=5_000)
    asked = client.get("/topics", follow_redirects=False)
    assert asked.status_code == 303 and asked.headers["location"] == "/login?next=/topics"
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(f"{SOCKETS}/x", headers={"origin": HOME}) as one,
    ):
        one.receive_text()
    token = await access.sign_in("ops", "good", "10.0.0.1")
    client.cookies.set(cookie_name(PORT), token)
    assert client.get("/topics").text == "hello ops"
    for _ in range(4):
        clock.now_ms += 900
        assert client.get("/").text == "hello ops", "requests keep it open"
    clock.now_ms += 1_001
    assert client.get("/", follow_redirects=False).status_code == 303, "an idle session ends"
    token = await access.sign_in("ops", "good", "10.0.0.1")
    client.cookies.set(cookie_name(PORT), token)
    for _ in range(6):
        clock.now_ms += 900
        last = client.get("/", follow_redirects=False)
    assert last.status_code == 303, "an old session ends, however busy"


async def test_guessing_is_slow_and_ends(monkeypatch):
    async def no_pause(seconds):
        assert seconds >= 1

    monkeypatch.setattr("twinlog.dashboard.access._pause", no_pause)
    clock = Clock()
    _, access = guarded(login=True, clock=clock)
    for _ in range(10):
        with pytest.raises(SignInFailed, match="wrong"):
            await access.sign_in("ops", "bad", "10.0.0.1")
    with pytest.raises(SignInFailed, match="too many"):
        await access.sign_in("ops", "good", "10.0.0.1")
    assert await access.sign_in("ops", "good", "10.0.0.2"), "others are not shut out"
    clock.now_ms += 61_000
    assert await access.sign_in("ops", "good", "10.0.0.1")
    together = [access.sign_in("ops", "bad", "10.0.0.3") for _ in range(30)]
    found = [str(one) for one in await asyncio.gather(*together, return_exceptions=True)]
    assert found.count("wrong") == 10, "attempts at the same time count as well"


async def test_without_accounts_nobody_signs_in():
    """Each account has the cluster asked every two seconds, and brokers without accounts would take any."""
    _, access = guarded(login=False)
    with pytest.raises(SignInFailed, match="no accounts"):
        await access.sign_in("ops", "good", "10.0.0.1")


@pytest.mark.parametrize(("checked", "problem"), [(["a:1"], None), ([], "whatever the secret is"), (["b:1"], None)])
async def test_only_a_broker_that_refuses_a_wrong_secret_vouches_for_an_account(monkeypatch, checked, problem):
    """A broker without accounts, or one that trusts this machine, answers everybody."""

    class Asked:
        def __init__(self, settings, credentials):
            self._credentials = credentials

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

        async def runtime_info(self, address):
            if address in checked and self._credentials.secret_key != "good":
                raise BrokerRefused(28, 16, "signature", address)
            return {}

    async def groups(admin):
        return [Group("C", "x", [Member(0, "a:1"), Member(1, "b:1")])]

    monkeypatch.setattr("twinlog.dashboard.access.reading_admin", Asked)
    monkeypatch.setattr("twinlog.dashboard.access.registered_groups", groups)
    access = Access(DashboardSettings(name_servers="127.0.0.1:1"), lambda observer: lambda: None, Clock())
    access.login_required = True
    if problem is None:
        assert await access.sign_in("ops", "good", "10.0.0.1")
        return
    monkeypatch.setattr("twinlog.dashboard.access._pause", groups)
    with pytest.raises(SignInFailed, match=problem):
        await access.sign_in("ops", "good", "10.0.0.1")


def test_the_address_of_a_visitor_is_that_of_the_connection():
    settings = DashboardSettings(name_servers="n:1")
    assert not _config(FastAPI(), settings).proxy_headers


@pytest.mark.parametrize(
    ("more", "needs_login", "problem"),
    [
        ({}, False, None),
        ({"host": "0.0.0.0"}, False, "use no accounts"),
        ({"host": "0.0.0.0"}, None, "no broker of"),
        ({"host": "0.0.0.0"}, True, None),
        ({"host": "0.0.0.0", "read_only": True}, False, None),
        ({"host": "0.0.0.0", "options": ClientOptions(credentials=Credentials("a", "b"))}, True, "act as a"),
    ],
)
def test_a_page_that_lets_strangers_administer_does_not_start(more, needs_login, problem):
    settings = DashboardSettings(name_servers="n:1", **more)
    if problem is None:
        warning = check_exposure(settings, needs_login)
        assert (warning is None) == settings.is_local
        return
    with pytest.raises(DashboardRefused, match=problem):
        check_exposure(settings, needs_login)


def test_markup_cannot_be_broken_out_of():
    assert tag("td", "<script>", title='"x"') == '<td title="&quot;x&quot;">&lt;script&gt;</td>'
    assert tag("p", tag("b", 5), None, ["a", Markup("<br>")]) == "<p><b>5</b>a<br></p>"
    assert isinstance(tag("p") + "<", Markup) and (tag("p") + "<").endswith("&lt;")


def test_after_signing_in_only_pages_of_ours_are_opened():
    wrong = ("//evil.example", "https://evil.example", "/\\evil.example", "/login", "")
    assert {safe_target(one) for one in wrong} == {"/"} and safe_target("/topics") == "/topics"
    assert "&lt;b&gt;" in login_html("<b>", "/", "dark") and "body--dark" in login_html("", "/", "dark")
