"""Who can change something: only an action, with what `Access.changer` gives it, and nobody in read-only mode."""

import ast
import asyncio
import functools
import sys
from pathlib import Path

import pytest
from nicegui import Client, ui
from tests.dashboard.dead_letters import make_dead_letter

from twinlog import dashboard, observe
from twinlog.client import BadArgument, MessageQueue
from twinlog.dashboard.access import Access, IsReadOnly, SessionEnded
from twinlog.dashboard.clients import READ_CODES, ReadingAdmin
from twinlog.dashboard.dialogs import group_dialogs, resend_dialogs, reset_dialog, topic_dialogs
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.pages import PAGES, cluster, groups, messages, replication, replication_actions, topics
from twinlog.dashboard.pipeline_files import PipelineReader
from twinlog.dashboard.settings import DashboardSettings
from twinlog.dashboard.widgets import actions
from twinlog.net.local_admin import is_administration
from twinlog.wire.bodies import SubscriptionGroupConfig
from twinlog.wire.codes import RequestCode
from twinlog.wire.message import Message
from twinlog.wire.twinlog_codes import TwinlogCode

SOURCES = [path for room in (dashboard, observe) for path in Path(room.__path__[0]).rglob("*.py")]
ACTING = (cluster, replication_actions, group_dialogs, resend_dialogs, reset_dialog, topic_dialogs)
GONE = "127.0.0.1:9"


@functools.cache
def all_calls():
    """(name, file, line) of each call in the sources."""
    nodes = [(path.name, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]
    found = [(file, node) for file, node in nodes if isinstance(node, ast.Call)]
    return [(getattr(node.func, "id", getattr(node.func, "attr", "")), file, node.lineno) for file, node in found]


def calls(*names):
    return {(file, line) for name, file, line in all_calls() if name in names}


async def test_a_page_sends_no_request_that_may_change_something():
    """Nothing listens at this address: a request that was sent would be a NetError."""
    for code in {*RequestCode, *TwinlogCode} - READ_CODES:
        with pytest.raises(BadArgument, match="may change something"):
            await ReadingAdmin("127.0.0.1:1").ask_broker("127.0.0.1:1", code)
    queue = MessageQueue("Orders", "b", 0)
    async with ReadingAdmin("127.0.0.1:1") as admin:
        admin.session._routes.get = route_of  # type: ignore[method-assign]
        for call in (
            admin.queue_calls.commit("shop", queue, 1),
            admin.queue_calls.send_back("shop", queue, Message(topic="Orders", body=b""), 1),
            admin.session.connect("127.0.0.1:1", RequestCode.SEND_MESSAGE_V2, 100),
            admin.change_role("127.0.0.1:1", "SLAVE"),
            admin.put_kv("n", "k", "v"),
        ):
            with pytest.raises(BadArgument, match="may change something"):
                await call


async def route_of(topic, create_queues=0):
    class Route:
        def address_of(self, name, broker_id=0):
            return "127.0.0.1:1"

    return Route()


def test_requests_of_pages_are_those_that_read():
    asks = ("GET_", "QUERY_", "VIEW_", "SEARCH_", "PULL_", "REPLICATION_STATUS", "LOG_DIGESTS")
    assert all(code.name.startswith(asks) for code in READ_CODES)
    assert not any(map(is_administration, READ_CODES))


def test_nobody_else_makes_a_client_of_the_cluster():
    clients = ("Admin", "Producer", "PushConsumer", "PullConsumer", "PollConsumer", "Session", "ConnectionPool")
    assert {file for file, _ in calls(*clients, "QueueCalls", "ReadingAdmin")} == {"clients.py"}
    assert {file for file, _ in calls("open_changer")} == {"access.py"}
    assert {file for file, _ in calls("changer")} == {"actions.py"}


async def test_a_session_that_has_ended_changes_nothing_any_more():
    access = Access(DashboardSettings(name_servers="127.0.0.1:1"), lambda observer: lambda: None)
    access.begin(login_required=False)
    visitor = access.visitor(None)
    assert visitor is not None
    async with access.changer(visitor):
        pass
    access.login_required = True  # accounts were switched on
    with pytest.raises(SessionEnded):
        async with access.changer(visitor):
            pass


# -- all actions of all pages -------------------------------------------------------------------


@pytest.fixture
def pair(twinlog_broker_factory):
    pair = twinlog_broker_factory(replicas=1)
    make_dead_letter(pair.namesrv, "billing", "Orders", b"cannot be done")
    pair.admin.save_group(pair.address, SubscriptionGroupConfig(group_name="billing"))
    pair.wait_replicated()
    return pair


class Clicks:
    """Presses the buttons that pages would have, if they did not know the mode; every question is answered with yes."""

    def __init__(self, monkeypatch):
        self.buttons, self.button_lines = {}, set()
        self.results, self.act_lines, self.said = [], set(), []
        for module in (cluster, groups, messages, replication, topics):
            monkeypatch.setattr(module, "action_button", self._button)
        for module in ACTING:
            monkeypatch.setattr(module, "act", self._act)
            for name, answer in (("confirm", self._yes), ("ask_form", self._form)):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, answer)
        monkeypatch.setattr(reset_dialog._ResetDialog, "run", self._reset)
        monkeypatch.setattr(ui, "notify", lambda text, **_: self.said.append(text))

    def _button(self, context, label, icon, work):
        frame = sys._getframe(1)
        line = (Path(frame.f_code.co_filename).name, frame.f_lineno)
        self.button_lines.add(line)
        self.buttons[label, line, context.read_only] = work

    async def _act(self, context, what, work):
        frame = sys._getframe(1)
        self.act_lines.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
        done = await actions.act(context, what, work)
        self.results.append((what, done))
        return done

    async def _yes(self, *_, **__):
        return True

    async def _form(self, title, fields, label, note=""):
        return {one.name: one.value or ("MadeHere" if one.name == "name" else one.value) for one in fields}

    @staticmethod
    async def _reset(dialog):
        await dialog._preview()
        await dialog._reset()

    async def press(self, *, read_only):
        """All buttons, those first that leave the others something to do."""
        self.results, self.said = [], []
        last = ("Delete", "Forget", "Planned")
        wanted = [one for one in self.buttons if one[2] == read_only]
        for one in sorted(wanted, key=lambda one: (one[0].startswith(last), one)):
            await self.buttons[one]()
        return self.results


def state(pair):
    """Everything that an action could change."""
    context = pair.master.broker.context
    offsets = pair.admin.consume_stats("billing", "Orders")[0]
    rows = {queue.queue_id: row.consumer_offset for queue, row in offsets.items()}
    return dict(context.topics.rows), dict(context.groups.rows), rows, pair.master.log_end, context.is_master


@pytest.mark.timeout(120)
async def test_in_read_only_mode_no_action_of_any_page_changes_anything(pair, monkeypatch):
    clicks, tasks, contexts = Clicks(monkeypatch), [], []
    dead = {"topic": "%DLQ%billing", "broker": pair.master.name, "queue": "0", "offset": "0"}
    group = f"{pair.master.broker.conf.broker.cluster_name}/{pair.master.name}"
    visits = [
        ("/topics", {}),
        ("/topics", {"topic": "Orders"}),
        ("/groups", {}),
        ("/groups", {"group": "billing"}),
        ("/messages", {"topic": dead["topic"]}),
        ("/messages", dead),
        ("/replication", {"group": group}),
        ("/pipeline", {}),
        ("/", {}),
    ]

    def start(observer):
        observer.survey._known[GONE] = (group.partition("/")[0], "gone", 0)
        tasks.append(asyncio.create_task(observer.run()))
        return tasks[-1].cancel

    with Client(ui.page("/x"), request=None):
        for read_only in (True, False):
            settings = DashboardSettings(name_servers=pair.namesrv, read_only=read_only, poll_s=600)
            access = Access(settings, start)
            access.begin(login_required=False)
            visitor = access.visitor(None)
            assert visitor is not None
            await visitor.observer.first_view(60)
            while visitor.observer.backlogs.latest is None:
                await asyncio.sleep(0.02)
            for path, query in visits:
                (page,) = [one for one in PAGES if one.path == path]
                contexts.append(PageContext(settings, access, visitor, query, PipelineReader(())))
                await page.build(contexts[-1])
        assert clicks.button_lines == calls("action_button"), "every button of the sources was drawn"
        before = await asyncio.to_thread(state, pair)
        refused = await clicks.press(read_only=True)
        assert clicks.act_lines == calls("act"), "every action of the sources was tried"
        assert not any(done for _, done in refused) and all("is read-only" in text for text in clicks.said)
        assert await asyncio.to_thread(state, pair) == before
        with pytest.raises(IsReadOnly):
            async with contexts[0].access.changer(contexts[0].visitor):
                pass
        done = await clicks.press(read_only=False)
        assert len(done) == len(refused) and all(ok for _, ok in done), clicks.said
    after = await asyncio.to_thread(state, pair)
    assert all(old != new for old, new in zip(before, after, strict=True))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
