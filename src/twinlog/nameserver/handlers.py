"""What a name server answers; see `route_table` for the decisions behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from twinlog.base.addresses import AddressError, parse_address
from twinlog.nameserver.errors import RegistrationRefused, TableFull
from twinlog.nameserver.kv_config import ORDER_TOPICS, KvConfig
from twinlog.nameserver.registration import RegisteredTopic, RegistrationBody, body_crc32, decode_registration
from twinlog.nameserver.route_body import encode_route
from twinlog.nameserver.route_table import (
    Identity,
    MinBrokerIdNotice,
    Registration,
    RouteTable,
    keep_zone,
)
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.net.limits import Limits
from twinlog.settings.conf_file import rewrite_file
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver_conf import NameServerConf
from twinlog.settings.properties import format_properties
from twinlog.settings.updates import UpdateRefused, plan_nameserver_update
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    DataVersion,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
)
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import (
    BrokerIdentityHeader,
    KvConfigHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    RouteHeader,
)
from twinlog.wire.java_json.fastjson import loads

log = get_logger(__name__)
Beside = Callable[[Callable[[], Any]], Awaitable[Any]]
QUEUES_KEY, TOPICS_KEY = "maxTopicQueueNums", "maxRouteTopics"
NAMES_SHOWN = 3
_Read = tuple[RegistrationBody, list[str], str]  # see `_read_registration`
_LARGE_BYTES = 1024 * 1024  # of a registration: some 6,000 topics
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class _Turn:
    """Who reads a registration of one connection, and how many wait for that."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class NameServerHandlers:
    """Answers every request of the name server; owns the tables and the settings in use."""

    def __init__(
        self,
        conf: NameServerConf,
        kv: KvConfig,
        *,
        clock_ms: Callable[[], int],
        notify: Callable[[MinBrokerIdNotice], None],
        beside: Beside | None = None,
    ) -> None:
        """`beside` runs what would hold up other requests for long; without it, they are held up."""
        self.conf = conf
        self.table = RouteTable()
        self.kv = kv
        self.limits = Limits()
        self._clock_ms = clock_ms
        self._notify = notify
        self._beside = beside
        self._started_ms = clock_ms()
        self._updating = asyncio.Lock()
        # One large registration of a connection at a time, so that nobody waits behind all those of another.
        self._reading: dict[int, _Turn] = {}

    def handlers(self) -> dict[int, Handler]:
        table = self.table
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(table.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(table.unit_subscription_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(table.unit_subscription_only_topics),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
        }

    # -- brokers -------------------------------------------------------------------------------

    def register_broker(self, request: Request) -> Command | Awaitable[Command]:
        header = decode_fields(RegisterBrokerHeader, request.fields)
        name = _required(header.broker_name, "brokerName")
        address = _address(_required(header.broker_addr, "brokerAddr"), "brokerAddr")
        cluster = _required(header.cluster_name, "clusterName")
        broker_id = _required(header.broker_id, "brokerId")
        ha_address = _address(header.ha_server_addr, "haServerAddr") if header.ha_server_addr else None
        if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        digest = hashlib.blake2b(request.body or b"", digest_size=16).digest()
        said = Registration(
            cluster=cluster,
            broker_name=name,
            address=address,
            broker_id=broker_id,
            ha_address=ha_address,
            silence_ms_max=header.heartbeat_timeout_millis,
            acting_master=header.enable_acting_master,
            zone=(request.fields or {}).get("__ZONE_NAME"),
            topics=None,
            connection=request.connection,
            digest=digest,
        )
        if self.table.holds(cluster, name, address, broker_id, digest):
            return self._register(request, said)
        decode = partial(_read_registration, request, header.compressed, self.conf.nameserver.topic_queues_max)
        # A few bytes may inflate to very many topics.
        if self._beside is not None and (header.compressed or len(request.body or b"") > _LARGE_BYTES):
            return self._register_later(request, said, partial(self._beside, decode))
        return self._register(request, self._with_topics(said, decode()))

    async def _register_later(
        self, request: Request, said: Registration, read: Callable[[], Awaitable[_Read]]
    ) -> Command:
        key = id(request.connection)
        turn = self._reading.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                said = self._with_topics(said, await read())
        finally:
            turn.users -= 1
            if not turn.users:
                del self._reading[key]
        if request.connection.closed:  # and with it the broker would have left
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection closed before the registration was read")
        return self._register(request, said)

    def _with_topics(self, said: Registration, read: _Read) -> Registration:
        body, without_route, problem = read
        wrapper = body.topic_config_serialize_wrapper
        if without_route:
            self._without_route(said.broker_name, without_route, QUEUES_KEY, problem)
        return dataclasses.replace(
            said,
            topics=wrapper.topic_config_table,
            without_route=frozenset(without_route),
            version=wrapper.data_version,
            mappings=wrapper.topic_queue_mapping_info_map or {},
            filter_servers=body.filter_server_list,
        )

    def _register(self, request: Request, said: Registration) -> Command:
        settings = self.conf.nameserver
        if (said.cluster, said.address) not in self.table.live:
            log.info(
                "a broker registers",
                broker=said.broker_name,
                id=said.broker_id,
                address=said.address,
                cluster=said.cluster,
            )
        try:
            known = self.table.register(
                said,
                self._clock_ms(),
                complete=settings.registrations_are_complete,
                topics_max=settings.route_topics_max,
            )
        except RegistrationRefused as refusal:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(refusal)) from refusal
        if known.left_out:
            problem = f"the table has {len(self.table.topics)} topics: {TOPICS_KEY} is {settings.route_topics_max}"
            self._without_route(said.broker_name, known.left_out, TOPICS_KEY, problem)
        if known.notice is not None and settings.notify_min_broker_id:
            self._notify(known.notice)
        answer = RegisterBrokerResponseHeader(ha_server_addr=known.master_ha_address, master_addr=known.master_address)
        order_topics = self.kv.namespace(ORDER_TOPICS) if settings.order_topics_to_brokers else None
        table = encode_body(KVTable(table=order_topics)) if order_topics is not None else None
        return request.reply(fields=encode_fields(answer), body=table)

    def _without_route(self, broker: str, topics: Sequence[str], key: str, problem: str) -> None:
        """One line for all of them: a registration may have very many."""
        self.limits.count(key, len(topics))
        some = ", ".join(topics[:NAMES_SHOWN])
        log.warning("topics get no route", broker=broker, topics=len(topics), some=some, error=problem)

    def unregister_broker(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        leaving = Identity(
            _required(header.cluster_name, "clusterName"),
            _required(header.broker_name, "brokerName"),
            _required(header.broker_addr, "brokerAddr"),
            _required(header.broker_id, "brokerId"),
        )
        self.unregister([leaving], "it said so")
        return request.reply()

    def unregister(self, leaving: list[Identity], why: str) -> None:
        """Take brokers out of the table and tell those that remain."""
        for one in leaving:
            log.info("a broker leaves", broker=one.broker_name, id=one.broker_id, address=one.address, why=why)
        for notice in self.table.unregister(leaving):
            if self.conf.nameserver.notify_min_broker_id:
                self._notify(notice)

    def query_data_version(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        cluster, address = header.cluster_name or "", header.broker_addr or ""
        asked = _data_version(request.body)
        stored = self.table.version_of(cluster, address)
        self.table.touch(cluster, address, self._clock_ms())
        changed = "true" if stored is None or stored != asked else "false"
        return request.reply(fields={"changed": changed}, body=encode_body(stored) if stored is not None else None)

    def heartbeat(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        self.table.touch(header.cluster_name or "", header.broker_addr or "", self._clock_ms())
        return request.reply()

    def member_group(self, request: Request) -> Command:
        header = decode_fields(BrokerIdentityHeader, request.fields)
        name, cluster = header.broker_name or "", header.cluster_name or ""
        broker = self.table.brokers.get(name)
        addresses = broker.broker_addrs if broker is not None else {}
        group = BrokerMemberGroup(cluster=cluster, broker_name=name, broker_addrs=addresses)
        body = encode_body(BrokerMemberGroupBody(broker_member_group=group))
        # Java forgets to clear the remark that every answer of it starts with.
        return request.reply(remark="not set any response code", body=body)

    # -- routes --------------------------------------------------------------------------------

    def route(self, request: Request) -> Command:
        settings = self.conf.nameserver
        if settings.waits_for_service and self._clock_ms() - self._started_ms < settings.wait_seconds * 1000:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        header = decode_fields(RouteHeader, request.fields)
        topic = header.topic
        found = self.table.route(topic, acting_masters=settings.acting_masters) if topic is not None else None
        if topic is None or found is None:
            remark = f"No topic route info in name server for the topic: {'null' if topic is None else topic}{_FAQ}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if settings.order_topics_in_routes:
            found.order_topic_conf = self.kv.get(ORDER_TOPICS, topic)
        fields = request.fields or {}
        zone = fields.get("__ZONE_NAME", "")
        if fields.get("__ZONE_MODE", "").lower() == "true" and zone.strip():
            return request.reply(body=encode_body(keep_zone(found, zone)))
        standard = header.accept_standard_json_only
        return request.reply(body=encode_route(found, requester_version=request.version, standard_only=standard))

    def cluster_info(self, request: Request) -> Command:
        return request.reply(body=encode_body(self.table.cluster_info()))

    # -- lists of topics -----------------------------------------------------------------------

    def all_topics(self, request: Request) -> Command:
        if not self.conf.nameserver.all_topics_listed:
            return request.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return request.reply(body=encode_body(TopicList(topic_list=list(self.table.topics))))

    def cluster_topics(self, request: Request) -> Command:
        cluster = (request.fields or {}).get("cluster", "")
        return self._listing(lambda: self.table.topics_of_cluster(cluster))(request)

    def system_topics(self, request: Request) -> Command:
        topics, address = self.table.system_topics()
        return request.reply(body=encode_body(TopicList(topic_list=topics, broker_addr=address)))

    def _listing(self, topics: Callable[[], list[str]]) -> Callable[[Request], Command]:
        def answer(request: Request) -> Command:
            if not self.conf.nameserver.topics_listed:
                return request.reply(ResponseCode.SYSTEM_ERROR, "disable")
            return request.reply(body=encode_body(TopicList(topic_list=topics())))

        return answer

    # -- an operator's changes -----------------------------------------------------------------

    def register_topic(self, request: Request) -> Command:
        topic = _required((request.fields or {}).get("topic"), "topic")
        queues = decode_body(TopicRouteData, request.body).queue_datas
        limit = self.conf.nameserver.topic_queues_max
        for one in queues:
            if not is_served(one, limit):
                what = f"topic {topic} with {one.read_queue_nums} read and {one.write_queue_nums} write queues"
                raise self.limits.refuse(
                    ResponseCode.INVALID_PARAMETER, what, QUEUES_KEY, limit, "register 0 to as many"
                )
        most, others = self.conf.nameserver.route_topics_max, len(self.table.topics)
        if topic not in self.table.topics and others >= most:
            what = f"topic {topic} beside {others} others"
            raise self.limits.refuse(ResponseCode.INVALID_PARAMETER, what, TOPICS_KEY, most, "delete some, or raise it")
        self.table.register_topic(topic, queues)
        return request.reply()

    def delete_topic(self, request: Request) -> Command:
        fields = request.fields or {}
        topic = _required(fields.get("topic"), "topic")
        self.table.delete_topic(topic, fields.get("clusterName"))
        log.info("a topic was deleted by request", topic=topic, peer=request.connection.peer_text)
        return request.reply()

    def wipe_write_permission(self, request: Request) -> Command:
        return self._change_permission(request, self.table.wipe_write_permission, "wipeTopicCount")

    def add_write_permission(self, request: Request) -> Command:
        return self._change_permission(request, self.table.add_write_permission, "addTopicCount")

    def _change_permission(self, request: Request, change: Callable[[str], int], answer: str) -> Command:
        name = (request.fields or {}).get("brokerName", "")
        count = change(name)
        log.info("write permissions were changed by request", broker=name, topics=count, what=answer)
        return request.reply(fields={answer: str(count)})

    # -- KV configs ----------------------------------------------------------------------------

    async def put_kv(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        namespace, key = header.namespace, header.key
        if namespace is None or key is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        value, settings = _required(header.value, "value"), self.conf.nameserver
        length, most = len(namespace) + len(key) + len(value), settings.kv_length_max
        if length > most:
            raise self._too_long(f"a KV config of {length} characters", "maxKvLength", most)
        most = settings.kv_table_length_max
        try:
            await self._kept(self.kv.put(namespace, key, value, length_max=most))
        except TableFull as full:
            raise self._too_long(str(full), "maxKvTableLength", most) from full
        return request.reply()

    def _too_long(self, what: str, key: str, limit: int) -> RequestRefused:
        return self.limits.refuse(ResponseCode.SYSTEM_ERROR, what, key, limit, "keep less there, or raise it")

    def get_kv(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        value = self.kv.get(header.namespace or "", header.key or "")
        if value is None:
            remark = f"No config item, Namespace: {_or_null(header.namespace)} Key: {_or_null(header.key)}"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark, {})
        return request.reply(fields={"value": value})

    async def delete_kv(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        await self._kept(self.kv.delete(header.namespace or "", header.key or ""))
        return request.reply()

    def list_kv(self, request: Request) -> Command:
        namespace = decode_fields(KvConfigHeader, request.fields).namespace
        found = self.kv.namespace(namespace) if namespace is not None else None
        if found is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {_or_null(namespace)}")
        return request.reply(body=encode_body(KVTable(table=found)))

    async def _kept(self, change: Awaitable[None]) -> None:
        try:
            await change
        except OSError as error:
            raise _not_written(f"KV configs cannot be written to {self.conf.nameserver.kv_path}: {error}") from error

    # -- settings ------------------------------------------------------------------------------

    def get_config(self, request: Request) -> Command:
        return request.reply(body=format_properties(self.conf.properties()).encode())

    async def update_config(self, request: Request) -> Command:
        async with self._updating:  # two updates in a row must not forget each other
            try:
                text = (request.body or b"").decode()
                update = plan_nameserver_update(self.conf.nameserver, text)
            except UpdateRefused as refusal:
                raise RequestRefused(ResponseCode.NO_PERMISSION, str(refusal)) from refusal
            except (SettingsError, UnicodeDecodeError) as problem:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(problem)) from problem
            if update.ignored:
                log.warning("an update names keys that nothing reads", keys=update.ignored_text)
            if update.changed:
                await asyncio.to_thread(self._write_config, update.changed)
                self.conf = dataclasses.replace(self.conf, nameserver=update.settings)
                log.info("settings were changed by request", peer=request.connection.peer_text, **update.changed)
        return request.reply(remark=f"nothing reads {update.ignored_text}" if update.ignored else None)

    def _write_config(self, changed: Mapping[str, str]) -> None:
        path = self.conf.nameserver.config_path
        try:
            rewrite_file(path, changed, missing_ok=True)
        except (OSError, SettingsError) as error:
            raise _not_written(f"settings cannot be written to {path}: {error}") from error


def is_served(topic: RegisteredTopic | QueueData, queues_max: int) -> bool:
    """Whether clients can make a list of the topic's queues."""
    return 0 <= topic.read_queue_nums <= queues_max and 0 <= topic.write_queue_nums <= queues_max


def _not_written(problem: str) -> RequestRefused:
    log.error(problem)
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{problem}; nothing was changed")


def _read_registration(request: Request, compressed: bool, queues_max: int) -> _Read:
    """The body, the topics that have more queues than any client can hold, and what is wrong with the first of them."""
    body = _decode_registration(request, compressed)
    topics = body.topic_config_serialize_wrapper.topic_config_table
    found = [name for name, topic in topics.items() if not is_served(topic, queues_max)]
    problem = ""
    if found:
        first = topics[found[0]]
        queues = f"{first.read_queue_nums} read and {first.write_queue_nums} write queues"
        problem = f"{queues} are not in 0 to {queues_max}, which is {QUEUES_KEY}"
    return body, found, problem


def _decode_registration(request: Request, compressed: bool) -> RegistrationBody:
    try:
        return decode_registration(request.body, version=request.version, compressed=compressed)
    except WireError as error:
        remark = f"RemotingCommandException: Failed to decode RegisterBrokerBody, {error}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error


def _data_version(body: bytes | None) -> DataVersion | None:
    if not body:
        return None
    try:
        return msgspec.convert(loads(body), DataVersion, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is no DataVersion: {error}") from error


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the request has no {name}, or one that cannot be read")
    return value


def _address(text: str, name: str) -> str:
    """`text`, which others will connect to. Java: anything is registered, and brokers and clients fail on it."""
    try:
        parse_address(text)
    except AddressError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name}: {error}") from error
    return text


def _or_null(text: str | None) -> str:
    return "null" if text is None else text
