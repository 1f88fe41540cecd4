"""What the handlers check in requests: fields that must be there, addresses, numbers of queues."""

from __future__ import annotations

from typing import Any

from twinlog.base.addresses import AddressError, parse_address
from twinlog.nameserver.registration_body import RegisteredTopic
from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import QueueData
from twinlog.wire.codes import ResponseCode

log = get_logger(__name__)
QUEUES_KEY, TOPICS_KEY = "maxTopicQueueNums", "maxRouteTopics"
INFLATED_KEY = "maxDecompressedRegistrationBytes"


def required(value: Any, name: str) -> Any:
    """`value`, which a field of the request must have."""
    if value is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the request has no {name}, or one that cannot be read")
    return value


def checked_address(text: str, name: str) -> str:
    """`text`, which others will connect to. Java: anything is registered, and brokers and clients fail on it."""
    try:
        parse_address(text)
    except AddressError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name}: {error}") from error
    return text


def is_served(topic: RegisteredTopic | QueueData, queues_max: int) -> bool:
    """Whether clients can make a list of the topic's queues."""
    return 0 <= topic.read_queue_nums <= queues_max and 0 <= topic.write_queue_nums <= queues_max


def not_written(problem: str) -> RequestRefused:
    """The refusal of a change that could not be written to disk; logs it."""
    log.error(problem)
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{problem}; nothing was changed")
