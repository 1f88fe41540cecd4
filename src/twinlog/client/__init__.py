"""A client for RocketMQ brokers, Java's and Twinlog's: asyncio here, blocking calls in `client.sync`.

    async with Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send(Outgoing("Orders", b"one tea", tags="hot", keys="order-1"))

Producer sends. PushConsumer passes messages to a function, and shares the queues with its group. PollConsumer shares
them too, and is asked for messages. PullConsumer reads queues by offset. Admin asks about and changes a cluster. Errors
are ClientError (with the next step) or NetError.

Rooms: `routing` (connections, routes, heartbeats) is below `sending` and `consuming`, which do not import each other;
`admin` and the modules here stand on these. Importing one module does not import all others: a process that Spark
starts to plan a write needs only options and errors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.client.admin.admin import Admin
    from twinlog.client.consuming.consumer_options import ConsumerOptions, StartFrom
    from twinlog.client.consuming.listener import Consumed, Consuming, PartlyConsumed, RetryLater
    from twinlog.client.consuming.process_queue import CacheLimits
    from twinlog.client.consuming.pulling import SQL92, TAG, PullResult, PullStatus
    from twinlog.client.consuming.rebalance import (
        allocate_averagely,
        allocate_by_circle,
        allocate_by_config,
        allocate_by_consistent_hash,
        allocate_by_machine_room,
        allocate_nearby,
    )
    from twinlog.client.errors import (
        BadArgument,
        BadMessage,
        BadRoute,
        BatchPartlySent,
        BrokerRefused,
        ClientClosed,
        ClientError,
        NoNameServer,
        NoRoute,
        SendFailed,
    )
    from twinlog.client.options import ClientOptions, tls_context
    from twinlog.client.poll_consumer import PollConsumer
    from twinlog.client.producer import Producer
    from twinlog.client.pull_consumer import PullConsumer
    from twinlog.client.push_consumer import PushConsumer
    from twinlog.client.sending.outgoing import Outgoing, SendResult, SendStatus
    from twinlog.client.sending.producer_options import ProducerOptions
    from twinlog.client.sending.replies import reply_to
    from twinlog.client.sending.send_hooks import Sending, SendKind
    from twinlog.client.sending.transactions import Outcome, TransactionResult
    from twinlog.client.signing import Credentials
    from twinlog.net.errors import NetError
    from twinlog.wire.bodies import MessageQueue
    from twinlog.wire.message import Message

_HOMES = {  # of the names below: their modules are imported when one of them is used
    "twinlog.client.admin.admin": ("Admin",),
    "twinlog.client.consuming.consumer_options": (
        "ConsumerOptions",
        "StartFrom",
    ),
    "twinlog.client.consuming.listener": (
        "Consumed",
        "Consuming",
        "PartlyConsumed",
        "RetryLater",
    ),
    "twinlog.client.consuming.process_queue": ("CacheLimits",),
    "twinlog.client.consuming.pulling": (
        "SQL92",
        "TAG",
        "PullResult",
        "PullStatus",
    ),
    "twinlog.client.consuming.rebalance": (
        "allocate_averagely",
        "allocate_by_circle",
        "allocate_by_config",
        "allocate_by_consistent_hash",
        "allocate_by_machine_room",
        "allocate_nearby",
    ),
    "twinlog.client.errors": (
        "BadArgument",
        "BadMessage",
        "BadRoute",
        "BatchPartlySent",
        "BrokerRefused",
        "ClientClosed",
        "ClientError",
        "NoNameServer",
        "NoRoute",
        "SendFailed",
    ),
    "twinlog.client.options": (
        "ClientOptions",
        "tls_context",
    ),
    "twinlog.client.poll_consumer": ("PollConsumer",),
    "twinlog.client.producer": ("Producer",),
    "twinlog.client.pull_consumer": ("PullConsumer",),
    "twinlog.client.push_consumer": ("PushConsumer",),
    "twinlog.client.sending.outgoing": (
        "Outgoing",
        "SendResult",
        "SendStatus",
    ),
    "twinlog.client.sending.producer_options": ("ProducerOptions",),
    "twinlog.client.sending.replies": ("reply_to",),
    "twinlog.client.sending.send_hooks": (
        "Sending",
        "SendKind",
    ),
    "twinlog.client.sending.transactions": (
        "Outcome",
        "TransactionResult",
    ),
    "twinlog.client.signing": ("Credentials",),
    "twinlog.net.errors": ("NetError",),
    "twinlog.wire.bodies": ("MessageQueue",),
    "twinlog.wire.message": ("Message",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SQL92",
    "TAG",
    "Admin",
    "BadArgument",
    "BadMessage",
    "BadRoute",
    "BatchPartlySent",
    "BrokerRefused",
    "CacheLimits",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Consumed",
    "ConsumerOptions",
    "Consuming",
    "Credentials",
    "Message",
    "MessageQueue",
    "NetError",
    "NoNameServer",
    "NoRoute",
    "Outcome",
    "Outgoing",
    "PartlyConsumed",
    "PollConsumer",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RetryLater",
    "SendFailed",
    "SendKind",
    "SendResult",
    "SendStatus",
    "Sending",
    "StartFrom",
    "TransactionResult",
    "allocate_averagely",
    "allocate_by_circle",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_by_machine_room",
    "allocate_nearby",
    "reply_to",
    "tls_context",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
