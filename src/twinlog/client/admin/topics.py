"""Topics: create, show, delete."""

from collections.abc import Iterable

from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.admin.calls import AdminCalls
from twinlog.client.errors import BadArgument, BrokerRefused, NoRoute
from twinlog.client.name_rules import check_topic
from twinlog.wire.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStats,
    encode_body,
)
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.headers import CreateTopicHeader

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class AdminTopics(AdminCalls):
    async def create_topic(
        self, topic: str, *, queues: int = 4, perm: int = 6, cluster: str | None = None
    ) -> list[str]:
        """Create or change `topic` on every master of `cluster` (by default the only one); returns their addresses."""
        check_topic(topic)
        if cluster is None:
            clusters = sorted((await self.cluster_info()).cluster_addr_table)
            if len(clusters) != 1:
                raise BadArgument(f"name the cluster; there are: {', '.join(clusters) or 'none'}")
            cluster = clusters[0]
        addresses = await self.masters(cluster)
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for address in addresses:
            await self.save_topic(address, config)
        return addresses

    async def save_topic(self, address: str, config: TopicConfig, *, attributes: str = "") -> None:
        """Create or change a topic on one broker; `attributes` is `+key=value,-key`."""
        header = CreateTopicHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes,
        )
        await self.ask_broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def save_topics(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Create or change many topics on one broker."""
        body = encode_body(TopicConfigList(topic_config_list=list(configs)))
        await self.ask_broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete `topic` from the cluster's brokers (from all by default) and from the name servers."""
        info = await self.cluster_info()
        clusters = [cluster] if cluster is not None else sorted(info.cluster_addr_table)
        for name in clusters:
            masters = await self.masters(name)
            for address in sorted(await self.addresses(name), key=lambda one: one not in masters):
                try:
                    await self.delete_topic_in_broker(address, topic)
                except BrokerRefused as refused:
                    # Java 4.9: a replica does not delete, it takes over the topics of its master.
                    if address in masters or refused.code != ResponseCode.SYSTEM_ERROR:
                        raise
        header = {"topic": topic} | ({"clusterName": cluster} if cluster is not None else {})
        await self.ask_all_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        order = {"namespace": ORDER_NAMESPACE, "key": topic}
        await self.ask_all_name_servers(RequestCode.DELETE_KV_CONFIG, order)

    async def delete_topic_in_broker(self, address: str, topic: str) -> None:
        """Delete a topic and its messages on one broker."""
        await self.ask_broker(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    async def topics(self) -> list[str]:
        """All topics of the name server."""
        return sorted((await self._names(TopicList, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).topic_list)

    async def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of one cluster."""
        answer = await self._names(TopicList, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        return sorted(answer.topic_list)

    async def topic_config(self, address: str, topic: str) -> TopicConfig:
        """The topic as a broker keeps it; brokers of 4.x are asked for all topics."""
        try:
            return await self._broker(TopicConfig, address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        except BrokerRefused as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        table = await self.topic_configs(address)
        if topic not in table.topic_config_table:
            raise NoRoute(topic, address, "configuration")
        return table.topic_config_table[topic]

    async def topic_configs(self, address: str) -> TopicConfigTable:
        """All topics that a broker keeps, with their configuration."""
        return await self._broker(TopicConfigTable, address, RequestCode.GET_ALL_TOPIC_CONFIG)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Oldest and newest offset, and the time of the newest message, of every queue."""
        rows: dict[MessageQueue, TopicOffset] = {}
        for address in (await self.topic_masters(topic)).values():
            stats = await self._broker(TopicStats, address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            rows |= stats.offset_table
        return dict(sorted(rows.items()))

    async def broker_topic_stats(self, address: str, topic: str) -> TopicStats:
        """Bounds of the topic's queues on one broker, and messages a second there."""
        return await self._broker(TopicStats, address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})

    async def clusters_of(self, topic: str) -> list[str]:
        """The clusters whose brokers have the topic."""
        return sorted({broker.cluster for broker in (await self.route_data(topic)).broker_datas})

    async def groups_of(self, topic: str) -> list[str]:
        """The consumer groups that read or have read the topic."""
        groups: set[str] = set()
        for address in (await self.topic_masters(topic)).values():
            answer = await self._broker(GroupList, address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            groups |= set(answer.group_list)
        return sorted(groups)

    async def system_topics(self, address: str) -> list[str]:
        """RocketMQ's own topics in this cluster."""
        answer = await self._broker(TopicList, address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return sorted(answer.topic_list)
