"""Send a message again: as a new one to its topic, or a dead letter to its group."""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.client import Message, MessageQueue
from twinlog.dashboard.clients import Changer
from twinlog.dashboard.frame import PageContext
from twinlog.dashboard.widgets.actions import act, confirm
from twinlog.observe.messages.message_text import resendable
from twinlog.wire import properties as names


async def send_again(context: PageContext, message: Message) -> bool:
    """As a new message, with the body, tag, keys and properties of this one."""
    topic = message.properties.get(names.RETRY_TOPIC, message.topic)
    sentences = [
        f"A new message with the same body, tag, keys and properties is sent to {topic}.",
        "Every group that reads the topic gets it.",
    ]
    if not await confirm("Send this message again?", sentences, "Send"):
        return False

    async def work(changer: Changer) -> str:
        sent = await changer.send(resendable(message, topic))
        return f"Sent as {sent.message_id}"

    return await act(context, f"send message {message.message_id} again", work)


async def deliver_again(context: PageContext, group: str, rows: Sequence[tuple[MessageQueue, Message]]) -> bool:
    """Dead letters to their group, through its retry topic; other groups do not get them."""
    count = f"{len(rows)} dead letters are" if len(rows) != 1 else "This dead letter is"
    sentences = [
        f"{count} delivered to group {group} again, and to no other group.",
        "The dead letters stay where they are.",
    ]
    if not await confirm(f"Deliver to {group} again?", sentences, "Deliver"):
        return False

    async def work(changer: Changer) -> str:
        for queue, message in rows:
            await changer.deliver(group, queue, message)
        return f"{len(rows)} delivered to {group} again"

    return await act(context, f"deliver dead letters of {group} again", work)
