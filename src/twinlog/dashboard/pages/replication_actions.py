"""What an operator does on the Replication page: compare two logs, let a replica take over."""

from __future__ import annotations

import time

from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.markup import Markup, tag
from twinlog.dashboard.widgets.actions import Work, act, confirm, show_error
from twinlog.dashboard.widgets.live import LiveHtml
from twinlog.observe.cluster.broker_groups import gather_groups
from twinlog.observe.replicas.log_compare import compare_logs, newest_begin, plan_comparison
from twinlog.observe.replicas.planned_switch import Switch, SwitchRefused, carry_out, plan_switch
from twinlog.observe.units import byte_rate_text, bytes_text

COMPARED_BYTES_MAX = 1 << 30  # the newest; `twinlog admin verifyReplica` compares all of a long log
_REDRAW_S = 0.2


async def compare_with(context: PageContext, result: LiveHtml, master: str, replica: str) -> None:
    """Compare the newest part of both logs by checksums, with the progress on the page."""

    async def work(changer: Changer) -> str:
        admin = changer.admin  # with more time for an answer than that of the page
        plan = await plan_comparison(admin, master, replica)
        if plan.end - plan.begin > COMPARED_BYTES_MAX:
            plan = await plan_comparison(admin, master, replica, newest_begin(plan, COMPARED_BYTES_MAX))
        began, drawn = time.monotonic(), 0.0

        def reached(at: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn < _REDRAW_S:
                return
            drawn, done, total = now, at - plan.begin, plan.end - plan.begin
            share = f"{bytes_text(done)} of {bytes_text(total)}"
            _show(result, "unknown", f"comparing: {share}, {byte_rate_text(done / max(0.001, now - began))}")

        _show(result, "unknown", f"comparing {bytes_text(plan.end - plan.begin)} …")
        equal = await compare_logs(admin, plan, reached)
        _show(result, "ok", "; ".join(equal.lines))
        return f"the logs of {master} and {replica} are equal"

    await _once(context, result, f"compare {master} with {replica}", f"{master} {replica}", work)


async def switch_to(context: PageContext, result: LiveHtml, cluster: str, name: str, replica: str) -> None:
    """Ask, then let `replica` take over; each step is shown when it begins."""
    try:
        groups = [one for one in context.observer.survey.groups if one.cluster == cluster]
        plan = plan_switch(groups, name, replica)
    except SwitchRefused as refused:
        show_error(str(refused))
        return
    if not await confirm(f"Make {replica} the master of {name}?", switch_sentences(plan), "Switch", is_dangerous=True):
        return
    steps: list[str] = []

    def tell(line: str) -> None:
        steps.append(line.strip())
        body = tag("ol", *(tag("li", one) for one in steps), cls="tl-steps")
        result.show(tag("div", "switching", body, cls="tl-result tl-unknown"))

    async def work(changer: Changer) -> str:
        fresh = plan_switch(await gather_groups(changer.admin, cluster), name, replica)
        if switch_sentences(fresh) != switch_sentences(plan):
            raise SwitchRefused(f"the brokers of {name} have changed since you were asked; look again, then switch")
        done = await carry_out(changer.admin, fresh, context.observer.name_servers, tell)
        _show(result, "ok", " ".join(done.lines))
        return done.lines[0]

    await _once(context, result, f"switch {name} to {replica}", f"{cluster}/{name}", work)


def switch_sentences(plan: Switch) -> list[str]:
    """What will happen, for the person who decides."""
    old, new = plan.old.address, plan.new.address
    return [
        f"{old}, the master now, refuses sends and gives {new} the rest of its log.",
        f"{new} becomes {plan.role} of {plan.name}; {old} follows it as replica {plan.new_id}.",
        "Sends fail for a second or two, and clients send again by themselves. Nothing acknowledged is lost.",
        f"If a step fails before {new} is master, {old} becomes master again. At the end both logs are compared.",
    ]


async def _once(context: PageContext, result: LiveHtml, what: str, subject: str, work: Work) -> None:
    """`act`, unless the same is under way in another window; a failure stays on the page."""
    running = context.access.under_way
    if subject in running:
        show_error(f"{what}: this is under way already")
        return
    running.add(subject)

    async def watched(changer: Changer) -> str:
        try:
            return await work(changer)
        except (*REQUEST_FAILURES, OSError) as error:
            _show(result, "critical", str(error))
            raise

    try:
        await act(context, what, watched)
    finally:
        running.discard(subject)


def _show(result: LiveHtml, level: str, text: str) -> None:
    result.show(Markup(tag("div", text, cls=f"tl-result tl-{level}")))
