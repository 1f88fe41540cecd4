"""`twinlog store resend FILE`: sends the messages of a tail that was set aside, but for those that are there."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from twinlog.cli.shared.connecting import Connection, run_client, with_connection
from twinlog.client import Admin, BrokerRefused, NoRoute, Outgoing, Producer
from twinlog.store.errors import StoreError
from twinlog.store.offline.tail_file import Damage, read_tail, sent_again
from twinlog.wire import properties as names
from twinlog.wire.message import Message

_UNREADABLE = 2
_GROUP = "TWINLOG_RESEND"


@with_connection
def resend(
    connection: Connection,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file tail-<begin>-<end> in set-aside/ of a store.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be sent.")] = False,
) -> None:
    """Send the messages of a tail that was cut off again, unless the cluster has them.

    A message is recognised by its unique key. Order and queues are new. Exit status 1 when some were not sent.
    """
    try:
        found = list(read_tail(file))
    except (StoreError, OSError) as error:
        print(f"twinlog store resend: {error}", file=sys.stderr)
        raise typer.Exit(_UNREADABLE) from error
    counts: Counter[str] = Counter()

    async def run() -> None:
        producer = Producer(connection.name_servers, _GROUP, options=connection.options())
        async with connection.admin() as admin, producer:
            for one in found:
                if isinstance(one, Damage):
                    counts["damaged"] += 1
                    print(f"damaged: {one.bytes} bytes from {one.physical_offset}: {one.reason}", file=sys.stderr)
                elif topic is None or topic in (one.topic, one.properties.get(names.REAL_TOPIC)):
                    counts[await _resend(one, admin, producer, dry_run=dry_run)] += 1

    status = run_client("store resend", run(), connection)
    would = "would be sent" if dry_run else "sent"
    print(f"{counts['sent']} {would}, {counts['there']} are there already, {counts['left']} left out")
    raise typer.Exit(status or (1 if counts["left"] or counts["damaged"] else 0))


async def _resend(message: Message, admin: Admin, producer: Producer, *, dry_run: bool) -> str:
    """`sent`, `there` or `left`; the reason for the last is printed."""
    plan = sent_again(message)
    if isinstance(plan, str):
        print(f"left out: {message.topic} {message.message_id}: {plan}")
        return "left"
    topic, properties = plan
    try:
        if await admin.messages_by_unique_key(topic, message.message_id, begin_ms=0):
            return "there"
    except (NoRoute, BrokerRefused) as error:
        print(f"left out: {topic} {message.message_id}: {error}")
        return "left"
    if not dry_run:
        again = Outgoing(topic, message.decoded_body, system_properties=properties, flag=message.flag)
        again.tags, again.keys = properties.pop(names.TAGS, ""), properties.pop(names.KEYS, "").split()
        again.sharding_key = properties.pop(names.SHARDING_KEY, "")
        await producer.send(again)
    print(f"{'would send' if dry_run else 'sent'}: {topic} {message.message_id}")
    return "sent"
