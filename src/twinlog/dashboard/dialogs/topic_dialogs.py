"""Create, change and delete a topic."""

from __future__ import annotations

from typing import Any

from twinlog.client import BadArgument
from twinlog.client.name_rules import check_topic
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.widgets.actions import act, confirm
from twinlog.dashboard.widgets.forms import Field, ask_form, read_whole
from twinlog.observe.topics import MESSAGE_TYPE, TopicView, permission_text
from twinlog.observe.units import count_text
from twinlog.wire.bodies import TopicConfig

PERMISSIONS = {value: permission_text(value) for value in (6, 4, 2, 0)}
TYPES = {
    "UNSPECIFIED": "not declared",
    "NORMAL": "normal",
    "FIFO": "in order",
    "DELAY": "delayed",
    "TRANSACTION": "transactions",
    "MIXED": "mixed",
}
_KEEP = ""  # leave the attribute as it is


async def create_topic(context: PageContext) -> str | None:
    """The name of the new topic; None when nothing was made."""
    clusters = sorted({one.cluster for one in context.observer.view.groups}) if context.observer.view else []
    values = await ask_form(
        "Create a topic",
        [
            Field("name", "Name", hint="letters, digits, - and _"),
            Field("cluster", "Cluster", "choice", clusters[0] if clusters else None, {one: one for one in clusters}),
            Field("queues", "Queues on each broker", "number", 8),
            Field("perm", "Permission", "choice", 6, PERMISSIONS),
            Field("type", "Messages", "choice", "UNSPECIFIED", TYPES),
        ],
        "Create",
    )
    if values is None:
        return None
    name = str(values["name"]).strip()

    async def work(changer: Changer) -> str:
        check_topic(name)
        addresses = await changer.admin.masters(str(values["cluster"]))
        config = _config(name, values)
        attributes = "" if values["type"] == "UNSPECIFIED" else f"+{MESSAGE_TYPE}={values['type']}"
        for address in addresses:
            await changer.admin.save_topic(address, config, attributes=attributes)
        return f"Topic {name} is on {len(addresses)} brokers"

    return name if await act(context, f"create topic {name}", work) else None


async def change_topic(context: PageContext, view: TopicView) -> bool:
    """Set queues and permission on every broker that has the topic."""
    config = next(iter(view.brokers.values())).config
    values = await ask_form(
        "Change the topic",
        [
            Field("name", "Name", value=view.name, is_fixed=True),
            Field("read", "Queues to read on each broker", "number", config.read_queue_nums),
            Field("write", "Queues to write on each broker", "number", config.write_queue_nums),
            Field(
                "perm", "Permission", "choice", config.perm, {config.perm: permission_text(config.perm), **PERMISSIONS}
            ),
        ],
        "Change",
        f"On {len(view.brokers)} brokers. To take queues away, lower the queues to write first, wait until the others "
        "are consumed, then lower the queues to read.",
    )
    if values is None:
        return False

    async def work(changer: Changer) -> str:
        read, write = read_whole(values, "read", "queues to read", 1), read_whole(values, "write", "queues to write", 1)
        masters = await changer.admin.topic_masters(view.name)
        if missing := sorted(view.brokers.keys() - masters.keys()):
            raise BadArgument(f"{', '.join(missing)} has the topic no more; look again")
        for name, on_broker in view.brokers.items():
            old = on_broker.config
            changed = TopicConfig(
                topic_name=view.name,
                read_queue_nums=read,
                write_queue_nums=write,
                perm=int(values["perm"]),
                topic_filter_type=old.topic_filter_type,
                topic_sys_flag=old.topic_sys_flag,
                order=old.order,
            )
            await changer.admin.save_topic(masters[name], changed)
        return f"Topic {view.name} was changed on {len(view.brokers)} brokers"

    return await act(context, f"change topic {view.name}", work)


async def delete_topic(context: PageContext, view: TopicView, groups: list[str] | None) -> bool:
    """`groups` that read it; None if that is not known."""
    readers = f"Groups that read it: {', '.join(groups[:10])}." if groups else "No group reads it."
    if groups is None:
        readers = "It is not known which groups read it."
    sentences = [
        f"{count_text(view.held)} messages on {len(view.brokers)} brokers are deleted with it.",
        readers,
        "This cannot be undone.",
    ]
    if not await confirm(f"Delete topic {view.name}?", sentences, "Delete", is_dangerous=True):
        return False

    async def work(changer: Changer) -> str:
        await changer.admin.delete_topic(view.name)
        return f"Topic {view.name} was deleted"

    return await act(context, f"delete topic {view.name}", work)


def _config(name: str, values: dict[str, Any]) -> TopicConfig:
    queues = read_whole(values, "queues", "queues", 1)
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=int(values["perm"]))
