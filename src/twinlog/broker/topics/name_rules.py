"""Which names topics and groups may have, in Java 5.5.0's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twinlog.base.system_names import (
    GROUP_LENGTH_MAX,
    LONG_TOPIC_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
    is_retry_or_dlq,
    is_system_topic,
)
from twinlog.wire.java_text import utf16_length

if TYPE_CHECKING:
    from twinlog.settings.broker import BrokerSettings

_ILLEGAL_CHARACTERS = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
_SHOWN_LENGTH_MAX = 512
_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")


def topic_name_problem(topic: str | None) -> str | None:
    """Why `topic` cannot name a topic, in the words of Java 5.5.0; None when it can."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if _ILLEGAL.search(topic):
        return f"The specified topic: {_shown(topic)}, {_ILLEGAL_CHARACTERS}"
    long_allowed = is_retry_or_dlq(topic)
    length_max = LONG_TOPIC_LENGTH_MAX if long_allowed else TOPIC_LENGTH_MAX
    if utf16_length(topic) <= length_max:
        return None
    if long_allowed:
        start = f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's"
    else:
        start = f"The specified topic: {_shown(topic)}, is"
    return f"{start} longer than topic max length: {length_max}"


def group_name_problem(group: str | None) -> str | None:
    """Why `group` cannot name a group; None when it can."""
    if group is None or not group.strip():
        return "The specified group is blank."
    if _ILLEGAL.search(group):
        return f"The specified group: {_shown(group)}, {_ILLEGAL_CHARACTERS}"
    if utf16_length(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {_shown(group)}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None


def is_reserved(topic: str, settings: BrokerSettings) -> bool:
    """Whether `topic` belongs to RocketMQ itself, or to this broker or its cluster."""
    return is_system_topic(topic, settings.cluster_name, settings.broker_name)


def _shown(name: str) -> str:
    """A name from a request, short enough for an answer."""
    return name if len(name) <= _SHOWN_LENGTH_MAX else f"{name[:_SHOWN_LENGTH_MAX]}..."
