"""Labels of RocketMQ 5's own metrics: what a Java broker 5.5.0 with `metricsExporterType=PROM` has.

A Twinlog broker's endpoint and the exporter use the same; `tests/interop/test_metrics.py` compares them with Java's.
"""

from __future__ import annotations

from twinlog.base.system_names import SYSTEM_GROUP_PREFIX

NODE = ("cluster", "node_type", "node_id")
STORAGE = (*NODE, "storage_type", "storage_medium")
IN = (*NODE, "topic", "message_type", "is_system")
OUT = (*NODE, "topic", "consumer_group", "is_system")
LAG = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
DEAD_LETTERS = (*NODE, "consumer_group", "is_system")
PRODUCERS = (*NODE, "language", "version", "protocol_type")
CONSUMERS = (*NODE, "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system")
RPC = (*NODE, "protocol_type", "request_code", "response_code", "is_long_polling", "result")

LOCAL_DISK = ("local", "disk")  # storage_type, storage_medium
REMOTING = "remoting"  # protocol_type
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


def consume_mode(consume_type: str) -> str:
    return _MODES.get(consume_type, consume_type.lower())


def is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def true_false(value: bool) -> str:
    return "true" if value else "false"
