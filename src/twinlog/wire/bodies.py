"""Bodies of requests and answers, typed. Names in Python style; RocketMQ's camelCase on the wire."""

import contextlib
from typing import Any, ClassVar, TypeVar

import msgspec

from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import ANSWER, PEER, Budget, check_size
from twinlog.wire.java_json.dialect import quote_bare_keys
from twinlog.wire.java_json.fastjson import IntKeys, dumps, is_array, is_object, loads
from twinlog.wire.numbers import Int, Long, OpenObject

S = TypeVar("S", bound="Body")


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all bodies. `object_maps` names the members whose keys are message queues."""

    object_maps: ClassVar[dict[str, Any]] = {}
    budget: ClassVar[Budget] = PEER


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    topic: str
    broker_name: str
    queue_id: Int


class DataVersion(msgspec.Struct, rename="camel", frozen=True):
    """When a table last changed; equal versions mean equal tables."""

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0

    def next(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        return DataVersion(state_version, now_ms, self.counter + 1)


class TopicConfig(Body):
    topic_name: str
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class SubscriptionData(Body):
    topic: str = ""
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[Int] = []
    sub_version: Long = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class SimpleSubscriptionData(Body):
    topic: str = ""
    expression_type: str = "TAG"
    expression: str = "*"
    version: Long = 0


class SubscriptionGroupConfig(Body):
    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: OpenObject = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class ConsumerData(Body):
    group_name: str
    consume_type: str | Int = "CONSUME_PASSIVELY"
    message_model: str | Int = "CLUSTERING"
    consume_from_where: str | Int = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(Body):
    group_name: str


class HeartbeatData(Body):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False


class CheckClientBody(Body):
    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class QueueData(Body):
    broker_name: str
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


class BrokerData(Body):
    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str] = {}
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body):
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: OpenObject | None = None


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicConfigTable(Body):
    """Topics with their version: answer to 21, part of a registration, and topics.json."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: OpenObject | None = None
    topic_queue_mapping_detail_map: OpenObject | None = None


class RegisterBrokerBody(Body):
    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)
    filter_server_list: list[str] | None = None


class SubscriptionGroupTable(Body):
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int]] = {}
    data_version: DataVersion = DataVersion()


class ConsumerOffsetTable(Body):
    budget = ANSWER
    offset_table: dict[str, dict[Int, Long]] = {}
    data_version: DataVersion | None = None


class DelayOffsetTable(Body):
    budget = ANSWER
    offset_table: dict[Int, Long] = {}
    data_version: DataVersion | None = None


class MessageRequestMode(Body):
    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int = 0


class MessageRequestModeTable(Body):
    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = {}


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(Body):
    group_list: list[str] = []


class KVTable(Body):
    table: dict[str, str] = {}


class ConsumerIdList(Body):
    consumer_id_list: list[str] = []


class LockBatchRequest(Body):
    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResponse(Body):
    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default=[])


class TopicConfigList(Body):
    topic_config_list: list[TopicConfig] = []


class GroupConfigList(Body):
    group_config_list: list[SubscriptionGroupConfig] = []


class TopicOffset(Body):
    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStats(Body):
    object_maps = {"offset_table": TopicOffset}
    budget = ANSWER
    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(Body):
    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(Body):
    object_maps = {"offset_table": OffsetWrapper}
    budget = ANSWER
    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ResetOffsetBody(Body):
    object_maps = {"offset_table": Long}
    budget = ANSWER
    offset_table: dict[MessageQueue, Long] = {}


class ConsumerStatus(Body):
    """Queues that consumers hold and how far they are: one consumer's own, or by client id."""

    object_maps = {"message_queue_table": Long}
    budget = ANSWER
    message_queue_table: dict[MessageQueue, Long] = {}
    consumer_table: dict[str, Any] = {}


class ConnectionInfo(Body):
    client_id: str = ""
    client_addr: str = ""
    language: str | None = "JAVA"
    version: Int = 0


class ConsumerConnection(Body):
    connection_set: list[ConnectionInfo] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(Body):
    connection_set: list[ConnectionInfo] = []


class BrokerMemberGroup(Body):
    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str] = {}


class BrokerMemberGroupBody(Body):
    broker_member_group: BrokerMemberGroup


class HaConnectionInfo(Body):
    addr: str = ""
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


class HaClientInfo(Body):
    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0


class HaRuntimeInfo(Body):
    master: bool = True
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HaConnectionInfo] = []
    ha_client_runtime_info: HaClientInfo = msgspec.field(default_factory=HaClientInfo)


def encode_body(body: Any, *, int_keys: IntKeys = "bare") -> bytes:
    """`body` as RocketMQ's JSON; `bare` integer keys are what Java writes, every Java reads either."""
    return dumps(body, int_keys=int_keys)


def decode_body(cls: type[S], data: bytes | None) -> S:
    """A `cls` from `data`; BodyError names what does not fit. Unknown members are ignored."""
    if not data:
        raise BodyError(f"{cls.__name__} expected, the body is empty")
    if not cls.object_maps and b"$ref" not in data:
        check_size(data, cls.budget.typed_values_max)
        try:
            return msgspec.json.decode(data, type=cls, strict=False)
        except msgspec.ValidationError:
            pass  # not this shape: the tolerant way finds out which it is, or accepts it
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not standard JSON. Mostly these are Java's bare keys, and there may be very many of them.
            check_size(data, cls.budget.values_max)
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return msgspec.json.decode(quote_bare_keys(data), type=cls, strict=False)
    return convert_body(cls, loads(bytes(data), cls.budget))


def convert_body(cls: type[S], value: Any) -> S:
    """A `cls` from an already parsed value."""
    if not is_object(value):
        raise BodyError(f"{cls.__name__} expected, the body is a JSON {type(value).__name__}")
    object_maps = cls.object_maps
    wire_names = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    skipped = {wire_names[name] for name in object_maps}
    try:
        plain = _without_nulls({k: v for k, v in value.items() if k not in skipped})
        body = msgspec.convert(plain, cls, strict=False)
        for attribute, kind in object_maps.items():
            rows: dict[Any, Any] = value.get(wire_names[attribute]) or {}
            setattr(body, attribute, {_queue(k): msgspec.convert(v, kind, strict=False) for k, v in rows.items()})
    except (msgspec.ValidationError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BodyError(f"{cls.__name__}: {error}") from error
    return body


def _without_nulls(value: Any) -> Any:
    """`value` without null members at any depth: to Java, null and absent are the same."""
    if is_object(value):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if is_array(value) else value


def _queue(key: Any) -> MessageQueue:
    """A message queue from a map key: an object, or text that holds one."""
    pairs = loads(key) if isinstance(key, str) else dict(key)
    return msgspec.convert(pairs, MessageQueue, strict=False)
