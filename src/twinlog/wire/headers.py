"""Custom headers of requests and answers, one class each; see `fields` for how they travel."""

from dataclasses import dataclass

from twinlog.wire.fields import wire
from twinlog.wire.numbers import Int, Long


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeader:
    """Code 10, long names; the short form is converted to it."""

    producer_group: str | None = None
    topic: str | None = None
    default_topic: str | None = None
    default_topic_queue_nums: Int | None = None
    queue_id: Int | None = None
    sys_flag: Int | None = None
    born_timestamp: Long | None = None
    flag: Int | None = None
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeaderV2:
    """Codes 310 and 320: the same with one-letter names."""

    producer_group: str | None = wire("a", None)
    topic: str | None = wire("b", None)
    default_topic: str | None = wire("c", None)
    default_topic_queue_nums: Int | None = wire("d", None)
    queue_id: Int | None = wire("e", None)
    sys_flag: Int | None = wire("f", None)
    born_timestamp: Long | None = wire("g", None)
    flag: Int | None = wire("h", None)
    properties: str | None = wire("i", None)
    reconsume_times: Int | None = wire("j", None)
    unit_mode: bool | None = wire("k", None)
    max_reconsume_times: Int | None = wire("l", None)
    batch: bool | None = wire("m", None)
    broker_name: str | None = wire("n", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResponseHeader:
    msg_id: str | None = None
    queue_id: Int | None = None
    queue_offset: Long | None = None
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullHeader:
    consumer_group: str | None = None
    topic: str | None = None
    queue_id: Int | None = None
    queue_offset: Long | None = None
    max_msg_nums: Int | None = None
    sys_flag: Int | None = None
    commit_offset: Long | None = None
    suspend_timeout_millis: Long | None = None
    subscription: str | None = None
    sub_version: Long | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    broker_name: str | None = wire("bname", None)
    large_answer: bool | None = wire("twinlogLargeAnswer", None)  # a Java broker ignores it


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResponseHeader:
    suggest_which_broker_id: Long | None = None
    next_begin_offset: Long | None = None
    min_offset: Long | None = None
    max_offset: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    offset_delta: Long | None = None
    forbidden_type: Int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackHeader:
    offset: Long | None = None
    group: str | None = None
    delay_level: Int | None = None
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffsetHeader:
    consumer_group: str | None = None
    topic: str | None = None
    queue_id: Int | None = None
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOffsetHeader:
    consumer_group: str | None = None
    topic: str | None = None
    queue_id: Int | None = None
    commit_offset: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHeader:
    """Codes 30, 31, 32: a topic and one of its queues."""

    topic: str | None = None
    queue_id: Int | None = None
    committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetHeader:
    topic: str | None = None
    queue_id: Int | None = None
    timestamp: Long | None = None
    boundary_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClientHeader:
    client_id: str | None = wire("clientID", None)
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionHeader:
    producer_group: str | None = None
    tran_state_table_offset: Long | None = None
    commit_log_offset: Long | None = None
    commit_or_rollback: Int | None = None
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactionHeader:
    topic: str | None = None
    tran_state_table_offset: Long | None = None
    commit_log_offset: Long | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageHeader:
    topic: str | None = None
    key: str | None = None
    max_num: Int | None = None
    begin_timestamp: Long | None = None
    end_timestamp: Long | None = None


FOR_REPAIR = "twinlogRepair"  # a field of VIEW_MESSAGE_BY_ID: a twin asks, whose own record there is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageHeader:
    offset: Long | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicHeader:
    topic: str | None = None
    default_topic: str | None = None
    read_queue_nums: Int | None = None
    write_queue_nums: Int | None = None
    perm: Int | None = None
    topic_filter_type: str | None = None
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHeader:
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeader:
    group: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeader:
    consumer_group: str | None = None
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupHeader:
    group_name: str | None = None
    clean_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForbiddenHeader:
    group: str | None = None
    topic: str | None = None
    readable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetHeader:
    topic: str | None = None
    group: str | None = None
    timestamp: Long | None = None
    is_force: bool = False
    queue_id: Int = -1
    offset: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerHeader:
    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None
    ha_server_addr: str | None = None
    broker_id: Long | None = None
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentityHeader:
    """Codes 104, 322, 901 and 904: the broker that asks, or is asked about."""

    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None
    broker_id: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponseHeader:
    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfigHeader:
    namespace: str | None = None
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteHeader:
    topic: str | None = None
    accept_standard_json_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueHeader:
    topic: str | None = None
    queue_id: Int | None = None
    index: Long | None = None
    count: Int | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneOffsetHeader:
    src_group: str | None = None
    dest_group: str | None = None
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayHeader:
    """Codes 307 and 309: an admin's question that a consumer answers."""

    consumer_group: str | None = None
    client_id: str | None = None
    jstack_enable: bool | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsHeader:
    stats_name: str | None = None
    stats_key: str | None = None
