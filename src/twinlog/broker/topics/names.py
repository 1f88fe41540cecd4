"""Which topic and group names are allowed, and which topics are the broker's own."""

from __future__ import annotations

import re

from twinlog.wire.java_text import utf16_length

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_PREFIX = "rmq_sys_"

TOPIC_LENGTH_MAX = 127
LONG_TOPIC_LENGTH_MAX = 255  # of retry and dead-letter topics
GROUP_LENGTH_MAX = 120
_ILLEGAL_CHARACTERS = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
_SHOWN_LENGTH_MAX = 512
_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TRACE_TOPIC,
        "CHECKPOINT_TOPIC",
    }
)
SEND_FORBIDDEN_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_system_topic(topic: str, cluster_name: str = "", broker_name: str = "") -> bool:
    """Whether clients may neither create nor delete `topic`."""
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX):
        return True
    own = {cluster_name, broker_name, f"{cluster_name}_REPLY_TOPIC"} if cluster_name or broker_name else set()
    return topic in own


def topic_name_problem(topic: str | None) -> str | None:
    """Why `topic` cannot name a topic, in the words of Java 5.5.0; None when it can."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if _ILLEGAL.search(topic):
        return f"The specified topic: {_shown(topic)}, {_ILLEGAL_CHARACTERS}"
    long_allowed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
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


def _shown(name: str) -> str:
    """A name that somebody sent, short enough for an answer."""
    return name if len(name) <= _SHOWN_LENGTH_MAX else f"{name[:_SHOWN_LENGTH_MAX]}..."
