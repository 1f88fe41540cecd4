"""A client for RocketMQ brokers, Java's and Twinlog's: asyncio here, blocking calls in `client.sync`.

    async with Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send(Outgoing("Orders", b"one tea", tags="hot", keys="order-1"))

Producer sends. PushConsumer passes messages to a function, and shares the queues with its group. PollConsumer shares
them too, and is asked for messages. PullConsumer reads queues by offset. Admin asks about and changes a cluster. Errors
are ClientError (with the next step) or NetError.

Rooms: `routing` (connections, routes, heartbeats) is below `sending` and `consuming`, which do not import each other;
`admin` and the modules here stand on these.
"""

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
