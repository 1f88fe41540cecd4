"""Names in RocketMQ: those it reserves for itself, and how long names may be."""

from __future__ import annotations

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
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = f"{SYSTEM_GROUP_PREFIX}TRANS"

TOPIC_LENGTH_MAX = 127
LONG_TOPIC_LENGTH_MAX = 255  # of retry and dead-letter topics
GROUP_LENGTH_MAX = 120

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
    TRANSACTION_GROUP,
)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_retry_or_dlq(topic: str) -> bool:
    """Whether `topic` holds messages that a group failed to consume."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def reply_topic(cluster_name: str) -> str:
    """Where the answers of request-reply calls are sent."""
    return f"{cluster_name}_REPLY_TOPIC"


def is_builtin_group(group: str) -> bool:
    """Whether `group` is one that a broker makes for itself, so that nobody looks for it."""
    return group in SYSTEM_GROUPS or group.upper().startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(topic: str, cluster_name: str = "", broker_name: str = "") -> bool:
    """Whether clients may neither create nor delete `topic`."""
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX):
        return True
    return bool(cluster_name or broker_name) and topic in (cluster_name, broker_name, reply_topic(cluster_name))
