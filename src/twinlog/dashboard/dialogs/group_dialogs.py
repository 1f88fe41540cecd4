"""Create, change and delete a consumer group."""

from __future__ import annotations

from typing import Any

from twinlog.client import BadArgument
from twinlog.client.name_rules import check_group
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.widgets.actions import act, confirm
from twinlog.dashboard.widgets.forms import Field, ask_form, read_whole
from twinlog.observe.units import count_text
from twinlog.wire.bodies import SubscriptionGroupConfig


async def save_group(context: PageContext, config: SubscriptionGroupConfig | None) -> str | None:
    """Create a group, or change one on all masters; its name when that was done."""
    is_new, old = config is None, config or SubscriptionGroupConfig(consume_broadcast_enable=False)
    values = await ask_form(
        "Create a consumer group" if is_new else "Change the group",
        [
            Field("name", "Name", value=old.group_name, is_fixed=not is_new, hint="letters, digits, - and _"),
            Field("enable", "May consume", "switch", old.consume_enable),
            Field("broadcast", "May broadcast", "switch", old.consume_broadcast_enable),
            Field("orderly", "Consumes in order", "switch", old.consume_message_orderly),
            Field("retries", "Retries before a dead letter", "number", old.retry_max_times),
            Field("queues", "Queues of its retry topic", "number", old.retry_queue_nums),
        ],
        "Create" if is_new else "Change",
        "On every master that answers.",
    )
    if values is None:
        return None
    name = str(values["name"]).strip()

    async def work(changer: Changer) -> str:
        check_group(name)
        masters, config = _masters(context), _changed(old, name, values)
        for address in masters.values():
            await changer.admin.save_group(address, config)
        return f"Group {name} was {'created' if is_new else 'changed'} on {len(masters)} brokers"

    return name if await act(context, f"save group {name}", work) else None


async def delete_group(context: PageContext, group: str, *, members: int, behind: int | None) -> bool:
    """`behind`: None if it is not known."""
    sentences = [
        f"{members} consumers are connected; they make the group again as soon as they pull."
        if members
        else "No consumer is connected.",
        f"It has {count_text(behind)} messages to consume. Its offsets are deleted, too.",
        "This cannot be undone.",
    ]
    if not await confirm(f"Delete group {group}?", sentences, "Delete", is_dangerous=True):
        return False

    async def work(changer: Changer) -> str:
        masters = _masters(context)
        for address in masters.values():
            await changer.admin.delete_group(address, group, clean_offset=True)
        return f"Group {group} was deleted on {len(masters)} brokers"

    return await act(context, f"delete group {group}", work)


def _masters(context: PageContext) -> dict[str, str]:
    found = context.observer.masters()
    if not found:
        raise BadArgument("no master answers, so nothing was changed")
    return found


def _changed(old: SubscriptionGroupConfig, name: str, values: dict[str, Any]) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(
        group_name=name,
        consume_enable=bool(values["enable"]),
        consume_from_min_enable=old.consume_from_min_enable,
        consume_broadcast_enable=bool(values["broadcast"]),
        consume_message_orderly=bool(values["orderly"]),
        retry_queue_nums=read_whole(values, "queues", "queues of its retry topic"),
        retry_max_times=read_whole(values, "retries", "retries before a dead letter", -1),
        group_retry_policy=old.group_retry_policy,
        broker_id=old.broker_id,
        which_broker_when_consume_slowly=old.which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=old.notify_consumer_ids_changed_enable,
        group_sys_flag=old.group_sys_flag,
        consume_timeout_minute=old.consume_timeout_minute,
        attributes=old.attributes,
    )
