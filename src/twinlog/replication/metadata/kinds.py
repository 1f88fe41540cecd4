"""The kinds of metadata that a replica takes over from its master: one row for each.

Everything that differs between kinds is in this table. Requests, status documents, histories, commands and
their output spell a kind as its `name`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinlog.metadata import delay_offsets, groups, offsets, request_modes, topics
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.tables import MetadataTables
from twinlog.wire.bodies import MessageRequestMode, SubscriptionGroupConfig, TopicConfig
from twinlog.wire.codes import RequestCode
from twinlog.wire.numbers import Long


@dataclass(frozen=True, slots=True)
class Paging:
    """How Java splits a table: the fields of a request and of its answer, and the member that holds the rows."""

    start_field: str
    count_field: str
    total_field: str
    rows_member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of metadata."""

    name: str
    file_name: str
    table: Callable[[MetadataTables], PersistedTable]
    row_type: Any  # of one row as Twinlog brokers send it, for msgspec
    request_code: int  # asks a Java master for the whole table
    on_vip_port: bool = False  # a Java master is asked on its second port
    paging: Paging | None = None
    name_member: str | None = None  # the member of a row that repeats its key
    only_master_writes: bool = False  # offsets are also committed on a replica
    alias: str | None = None  # a second spelling that commands accept


TOPICS_PAGING = Paging("topicSeq", "maxTopicNum", "totalTopicNum", "topic_config_table")
GROUPS_PAGING = Paging("groupSeq", "maxGroupNum", "totalGroupNum", "subscription_group_table")
TOPICS = Kind(
    name=topics.KIND,
    alias="topic",
    file_name=topics.FILE_NAME,
    table=lambda tables: tables.topics,
    row_type=TopicConfig,
    request_code=RequestCode.GET_ALL_TOPIC_CONFIG,
    on_vip_port=True,
    paging=TOPICS_PAGING,
    name_member="topic_name",
    only_master_writes=True,
)
OFFSETS = Kind(
    name=offsets.KIND,
    alias="consumerOffset",
    file_name=offsets.FILE_NAME,
    table=lambda tables: tables.offsets,
    row_type=offsets.Offsets,
    request_code=RequestCode.GET_ALL_CONSUMER_OFFSET,
)
DELAY_OFFSETS = Kind(
    name=delay_offsets.KIND,
    alias="delayOffset",
    file_name=delay_offsets.FILE_NAME,
    table=lambda tables: tables.delay_offsets,
    row_type=Long,
    request_code=RequestCode.GET_ALL_DELAY_OFFSET,
)
GROUPS = Kind(
    name=groups.KIND,
    alias="group",
    file_name=groups.FILE_NAME,
    table=lambda tables: tables.groups,
    row_type=SubscriptionGroupConfig,
    request_code=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    paging=GROUPS_PAGING,
    name_member="group_name",
    only_master_writes=True,
)
REQUEST_MODES = Kind(
    name=request_modes.KIND,
    file_name=request_modes.FILE_NAME,
    table=lambda tables: tables.request_modes,
    row_type=dict[str, MessageRequestMode],
    request_code=RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    only_master_writes=True,
)
# In Java's order. 4.9 masters have the first four only.
KINDS = (TOPICS, OFFSETS, DELAY_OFFSETS, GROUPS, REQUEST_MODES)
KIND_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_SPELLING = KIND_BY_NAME | {kind.alias: kind for kind in KINDS if kind.alias is not None}


def find_kind(text: str) -> Kind | None:
    """The kind that an operator means by `text`, in either spelling; None when there is no such kind."""
    return _BY_SPELLING.get(text)


def table_of(tables: MetadataTables, kind: str) -> PersistedTable:
    """The table of the kind with this name."""
    return KIND_BY_NAME[kind].table(tables)
