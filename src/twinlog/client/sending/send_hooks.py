"""What hooks see of a send."""

from dataclasses import dataclass
from enum import Enum

from twinlog.client.sending.outgoing import Outgoing, SendResult


class SendKind(Enum):
    """The value is the number that RocketMQ's message trace has for it."""

    NORMAL = 0
    HALF = 1  # the invisible message of a transaction
    DELAYED = 3


@dataclass(slots=True)
class Sending:
    """One call of `send`, `send_batch`, `send_oneway` or `send_in_transaction`.

    A hook may replace elements of `messages`, to add properties for example, before they leave. Afterwards `result` or
    `error` is the outcome; a oneway send has neither.
    """

    group: str
    messages: list[Outgoing]
    kind: SendKind = SendKind.NORMAL
    result: SendResult | None = None
    error: BaseException | None = None


def kind_of_send(messages: list[Outgoing]) -> SendKind:
    return SendKind.DELAYED if any(message.is_delayed for message in messages) else SendKind.NORMAL
