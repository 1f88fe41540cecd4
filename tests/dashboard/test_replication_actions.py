"""Buttons of the Replication page: what is done is what was confirmed, and names of strangers stay text."""

import asyncio
from types import SimpleNamespace

import pytest
from nicegui import Client, ui

from twinlog.dashboard.pages import replication_actions
from twinlog.dashboard.pages.replication_actions import switch_to
from twinlog.dashboard.widgets.actions import confirm
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member
from twinlog.observe.replicas.log_compare import Comparison, Endpoint, newest_begin
from twinlog.observe.replicas.planned_switch import SwitchRefused

MIB = 1024 * 1024


async def test_a_name_with_quotes_cannot_add_a_property_to_the_dialog():
    """A property whose name begins with a colon is run by the browser. Seen to fail with the title in a text."""
    client, title = Client(ui.page("/x"), request=None), 'Make b" :title="alert(1)" x=" master?'

    async def ask():
        with client:
            await confirm(title, ["a"], "Go")

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    (dialog,) = [one for one in client.elements.values() if isinstance(one, ui.dialog)]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert dialog.props["aria-label"] == title and not any(key.startswith(":") for key in dialog.props)


def group(master):
    following = {"role": "SLAVE", "following": {"state": "following"}}
    replica = Member(1, "b1:1", "twinlog", following, 0, 10)
    return Group(
        "C",
        "b",
        [Member(0, master, "twinlog", {"role": "ASYNC_MASTER"}, 0, 10), replica],
        {1: LagFacts(0, in_sync=True)},
    )


async def test_a_switch_that_is_not_the_confirmed_one_is_not_begun(monkeypatch):
    """Seen to fail when the plan that is made after the question is not compared with the one before."""
    said, carried_out = [], []

    async def yes(*_, **__):
        return True

    async def act(context, what, work):
        await work(SimpleNamespace(admin=None))

    async def gather(admin, cluster):
        return [group("other:1")]

    async def carry_out(admin, plan, names, tell):
        carried_out.append(plan)

    for name, fake in (("confirm", yes), ("gather_groups", gather), ("act", act), ("carry_out", carry_out)):
        monkeypatch.setattr(replication_actions, name, fake)
    observer = SimpleNamespace(survey=SimpleNamespace(groups=[group("b0:1")]), name_servers="n:1")
    context = SimpleNamespace(observer=observer, access=SimpleNamespace(under_way=set()))
    result = SimpleNamespace(show=said.append)
    with pytest.raises(SwitchRefused, match="changed since you were asked"):
        await switch_to(context, result, "C", "b", "b1:1")  # type: ignore[arg-type]
    assert not carried_out and "changed since you were asked" in said[-1] and not context.access.under_way


def test_the_newest_part_of_a_java_log_begins_where_a_record_does():
    """Within a record Java answers nothing, and two equal logs were called different."""

    def begin(*, is_twinlog, segment_bytes=64 * MIB):
        ends = [Endpoint(name, 0, 1000 * MIB, is_twinlog, segment_bytes) for name in ("m:1", "r:1")]
        return newest_begin(Comparison(*ends, 0, 1000 * MIB), 100 * MIB)

    assert begin(is_twinlog=True) == 900 * MIB
    assert begin(is_twinlog=False) == 896 * MIB and begin(is_twinlog=False, segment_bytes=None) == 0
