"""Consumer and producer groups: configuration, members, progress, offsets."""

from collections.abc import Iterable
from typing import Any

from twinlog.base.system_names import retry_topic
from twinlog.client.admin.calls import AdminCalls
from twinlog.client.errors import BadArgument, BrokerRefused, NoRoute
from twinlog.wire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupConfigList,
    MessageQueue,
    MessageRequestMode,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
    encode_body,
)
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.headers import (
    CloneOffsetHeader,
    ConsumerGroupHeader,
    DeleteGroupHeader,
    RelayHeader,
)

_RELAY_TIMEOUT_MS = 15_000  # the broker asks the consumer, for 10 s


class AdminGroups(AdminCalls):
    async def save_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on one broker."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.ask_broker(address, code, None, encode_body(config))

    async def save_groups(self, address: str, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change many consumer groups on one broker."""
        body = encode_body(GroupConfigList(group_config_list=list(configs)))
        await self.ask_broker(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def delete_group(self, address: str, group: str, *, clean_offset: bool = False) -> None:
        """Delete a consumer group on one broker; with `clean_offset` also its progress."""
        header = DeleteGroupHeader(group_name=group, clean_offset=clean_offset)
        await self.ask_broker(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def groups(self, address: str) -> SubscriptionGroupTable:
        """All consumer groups that a broker keeps."""
        return await self._broker(SubscriptionGroupTable, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)

    async def consumer_connection(self, group: str, address: str | None = None) -> ConsumerConnection:
        """The members of a group that are connected, with their subscriptions; of all brokers by default."""
        found: ConsumerConnection | None = None
        for each in await self._group_brokers(group, address):
            try:
                answer = await self.consumer_connection_at(each, group)
            except BrokerRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            if found is None:
                found = answer
                continue
            known = {connection.client_id for connection in found.connection_set}
            found.connection_set += [c for c in answer.connection_set if c.client_id not in known]
            found.subscription_table |= answer.subscription_table
        if found is None:
            raise BadArgument(f"consumer group {group!r} has no member online; start a consumer first")
        return found

    async def consumer_connection_at(self, address: str, group: str) -> ConsumerConnection:
        """The same from one broker, with its refusal when nobody is connected."""
        header = {"consumerGroup": group}
        return await self._broker(ConsumerConnection, address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)

    async def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """The producers of a group that are connected to the brokers of `topic`."""
        found = ProducerConnection(connection_set=[])
        for address in (await self.topic_masters(topic)).values():
            answer = await self._broker(
                ProducerConnection, address, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group}
            )
            found.connection_set += answer.connection_set
        return found

    async def producers(self, address: str) -> dict[str, list[dict[str, Any]]]:
        """All producers that are connected to a broker, by group."""
        return (await self._broker_json(address, RequestCode.GET_ALL_PRODUCER_INFO)).get("data", {})

    async def consume_stats(
        self, group: str, topic: str | None = None
    ) -> tuple[dict[MessageQueue, OffsetWrapper], float]:
        """(the group's offset in every queue, messages it consumes a second)."""
        rows: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        header = ConsumerGroupHeader(consumer_group=group, topic=topic)
        for address in await self._group_brokers(group, None, topic):
            stats = await self._broker(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)
            rows |= stats.offset_table
            rate += stats.consume_tps
        return dict(sorted(rows.items())), rate

    async def consume_stats_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """The group's offsets in the queues of one broker."""
        header = ConsumerGroupHeader(consumer_group=group, topic=topic)
        return await self._broker(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)

    async def broker_consume_stats(self, address: str, *, order: bool, timeout_ms: int | None = None) -> dict[str, Any]:
        """Progress of all groups on one broker."""
        header = {"isOrder": "true" if order else "false"}
        return await self._broker_json(address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=timeout_ms)

    async def consume_spans(self, address: str, group: str, topic: str) -> dict[int, int]:
        """Queue -> how many ms the oldest message waits that the group has not consumed; 0: there is none."""
        answer = await self._broker_json(address, RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group})
        rows = answer.get("consumeTimeSpanSet") or []
        return {int(row["messageQueue"]["queueId"]): max(int(row.get("delayTime") or 0), 0) for row in rows}

    async def running_info(self, group: str, client_id: str, *, jstack: bool = False) -> dict[str, Any]:
        """The state of one member, asked for through a broker that it is connected to."""
        header = RelayHeader(consumer_group=group, client_id=client_id, jstack_enable=jstack)
        return await self._relay(group, RequestCode.GET_CONSUMER_RUNNING_INFO, header)

    async def running_info_at(self, address: str, group: str, client_id: str, *, timeout_ms: int) -> dict[str, Any]:
        """The same through the broker at `address`."""
        header = RelayHeader(consumer_group=group, client_id=client_id, jstack_enable=False)
        return await self._broker_json(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=timeout_ms)

    async def consume_directly(self, group: str, client_id: str, message_id: str, topic: str) -> dict[str, Any]:
        """Have one member consume a message (by its offset id) now; returns the result."""
        header = RelayHeader(consumer_group=group, client_id=client_id, msg_id=message_id, topic=topic)
        return await self._relay(group, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

    async def topics_of_group(self, group: str) -> list[str]:
        """The topics that a group reads or has read."""
        found: set[str] = set()
        for address in await self._group_brokers(group):
            found |= set(
                (
                    await self._broker(TopicList, address, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
                ).topic_list
            )
        return sorted(found)

    async def clone_offset(self, source: str, target: str, topic: str, *, offline: bool) -> None:
        """Copy the offsets of group `source` in `topic` to group `target`."""
        header = CloneOffsetHeader(src_group=source, dest_group=target, topic=topic, offline=offline)
        for address in (await self.topic_masters(topic)).values():
            await self.ask_broker(address, RequestCode.CLONE_GROUP_OFFSET, header)

    async def set_request_mode(self, address: str, mode: MessageRequestMode) -> None:
        """Have a group read a topic by pull or by pop."""
        await self.ask_broker(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_body(mode))

    async def _relay(self, group: str, code: int, header: RelayHeader) -> dict[str, Any]:
        last: BrokerRefused | None = None
        for address in await self._group_brokers(group):
            try:
                return await self._broker_json(address, code, header, timeout_ms=_RELAY_TIMEOUT_MS)
            except BrokerRefused as error:
                last = error
        raise last or BadArgument(f"no broker has consumer group {group!r}")

    async def _group_brokers(self, group: str, address: str | None = None, topic: str | None = None) -> list[str]:
        """The brokers that have a group: those of its retry topic, which its first heartbeat creates."""
        if address is not None:
            return [address]
        try:
            return list((await self.topic_masters(topic or retry_topic(group))).values())
        except NoRoute:
            if topic is not None:
                raise
        raise BadArgument(f"no broker has consumer group {group!r}; its first consumer or updateSubGroup creates it")
