"""Brokers and name servers: configuration, state, housekeeping."""

from typing import Any

from twinlog.client.admin.calls import AdminCalls
from twinlog.client.answer_fields import read_number
from twinlog.settings.properties import format_properties
from twinlog.wire.bodies import HaRuntimeInfo, KVTable
from twinlog.wire.codes import RequestCode
from twinlog.wire.headers import ConsumeQueueHeader, KvConfigHeader, StatsHeader


class AdminServers(AdminCalls):
    # -- brokers -------------------------------------------------------------------------------

    async def runtime_info(self, address: str) -> dict[str, str]:
        """What the broker reports about itself, name by name."""
        return (await self._broker(KVTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """The broker's configuration in force, key by key."""
        return read_lines((await self.ask_broker(address, RequestCode.GET_BROKER_CONFIG)).body)

    async def update_broker_config(self, address: str, values: dict[str, str]) -> str:
        """The broker's remark on the update; usually empty."""
        body = format_properties(values).encode()
        return (await self.ask_broker(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)).remark or ""

    async def clean(self, address: str, code: RequestCode) -> int | None:
        """Housekeeping: CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC or DELETE_EXPIRED_COMMITLOG.

        How many files or topics were deleted; None from a Java broker, which does it later and does not count.
        """
        answer = await self.ask_broker(address, code, timeout_ms=30_000)
        return read_number(answer.fields, "deleted", 0) if "deleted" in (answer.fields or {}) else None

    async def ha_status(self, address: str) -> HaRuntimeInfo:
        """The progress of a master's replicas, or of this replica."""
        return await self._broker(HaRuntimeInfo, address, RequestCode.GET_BROKER_HA_STATUS)

    async def reset_master_flush_offset(self, address: str, offset: int) -> None:
        """Set the flushed offset that a broker keeps of its master."""
        header = {"masterFlushOffset": str(offset)}
        await self.ask_broker(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    async def stats(self, address: str, name: str, key: str) -> dict[str, Any]:
        """A counter of the broker (such as TOPIC_PUT_NUMS of a topic): last minute, hour and day."""
        header = StatsHeader(stats_name=name, stats_key=key)
        return await self._broker_json(address, RequestCode.VIEW_BROKER_STATS_DATA, header)

    async def consume_queue(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> dict[str, Any]:
        """Entries of a consume queue as they are stored."""
        header = ConsumeQueueHeader(topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group)
        return await self._broker_json(address, RequestCode.QUERY_CONSUME_QUEUE, header)

    async def cold_data_info(self, address: str) -> dict[str, Any]:
        """Which groups read data that is not in memory, and how fast."""
        return await self._broker_json(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)

    async def set_cold_data_threshold(self, address: str, group: str, threshold: int) -> None:
        """Set a group's own limit for reads of cold data."""
        body = format_properties({group: str(threshold)}).encode()
        await self.ask_broker(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, body)

    async def remove_cold_data_threshold(self, address: str, group: str) -> None:
        """Remove a group's own limit for reads of cold data."""
        await self.ask_broker(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, group.encode())

    async def set_read_ahead(self, address: str, mode: str) -> str:
        """Let the broker read its log ahead, or not."""
        header = {"READ_AHEAD_MODE": mode}
        return (await self.ask_broker(address, RequestCode.SET_COMMITLOG_READ_MODE, header)).remark or ""

    # -- name servers --------------------------------------------------------------------------

    async def name_server_config(self, address: str) -> dict[str, str]:
        """The configuration of one name server, key by key."""
        return read_lines((await self.ask_broker(address, RequestCode.GET_NAMESRV_CONFIG)).body)

    async def update_name_server_config(self, values: dict[str, str]) -> None:
        """Change the configuration of all name servers."""
        await self.ask_all_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, None, format_properties(values).encode())

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a key of a namespace at the name servers."""
        header = KvConfigHeader(namespace=namespace, key=key, value=value)
        await self.ask_all_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv(self, namespace: str, key: str) -> str:
        """The value of a key at the name server."""
        header = KvConfigHeader(namespace=namespace, key=key)
        answer = await self.session.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        return (answer.fields or {}).get("value", "")

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete one key of a namespace at the name servers."""
        await self.ask_all_name_servers(RequestCode.DELETE_KV_CONFIG, KvConfigHeader(namespace=namespace, key=key))

    async def kv_of(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace at the name server."""
        return (await self._names(KVTable, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})).table

    async def wipe_write_permission(self, address: str, broker_name: str) -> int:
        """Take a broker's topics off the producers' routes at one name server; how many topics."""
        return await self._permission(address, broker_name, RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount")

    async def add_write_permission(self, address: str, broker_name: str) -> int:
        """Let one name server offer the broker for writing again; how many topics changed."""
        return await self._permission(address, broker_name, RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount")

    async def _permission(self, address: str, broker_name: str, code: int, count: str) -> int:
        answer = await self.ask_broker(address, code, {"brokerName": broker_name})
        return read_number(answer.fields, count, 0)


def read_lines(body: bytes | None) -> dict[str, str]:
    """`key=value` lines as servers print their configuration."""
    pairs = (line.partition("=") for line in (body or b"").decode("utf-8", "replace").splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs if not key.startswith("#")}
