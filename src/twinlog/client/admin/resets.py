"""Moving a consumer group to another place of a topic.

RocketMQ 5 and Twinlog set the offsets at the broker (`useServerSideResetOffset`). RocketMQ 4 asks the connected
consumers to do it, always for all queues, and refuses when there is none: then the offsets are committed from here.
"""

from twinlog.client.admin.groups import AdminGroups
from twinlog.client.admin.servers import AdminServers
from twinlog.client.errors import BadArgument, BrokerRefused
from twinlog.wire.bodies import MessageQueue, ResetOffsetBody
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.headers import ResetOffsetHeader

# Java 4.9 answers SYSTEM_ERROR for a group that has no offset in one of the queues yet.
_OF_VERSION_4 = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


class AdminResets(AdminGroups, AdminServers):
    async def reset_offset(
        self,
        topic: str,
        group: str,
        timestamp_ms: int,
        *,
        force: bool = True,
        address: str | None = None,
        queue_id: int = -1,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        """Move a group to a time (-1: the newest message), or one queue to an offset; the new offsets."""
        header = ResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=force, queue_id=queue_id, offset=offset
        )
        addresses = [address] if address else list((await self.topic_masters(topic)).values())
        moved: dict[MessageQueue, int] = {}
        for each in addresses:
            moved |= await self._reset_at(each, header)
        return dict(sorted(moved.items()))

    async def _reset_at(self, address: str, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        if header.queue_id < 0 or await self._resets_itself(address):
            try:
                code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
                return (await self._broker(ResetOffsetBody, address, code, header)).offset_table
            except BrokerRefused as refused:
                is_old = refused.code in _OF_VERSION_4 and not await self._resets_itself(address)
                if not is_old or await self._is_online(address, header.group or ""):
                    raise
        elif await self._is_online(address, header.group or ""):
            raise BadArgument(
                f"{address} cannot move one queue of a group with connected consumers, only all (RocketMQ 4, or "
                "useServerSideResetOffset=false). Stop the consumers first, or move the group to a time"
            )
        return await self._commit_at(address, header)

    async def _resets_itself(self, address: str) -> bool:
        return (await self.broker_config(address)).get("useServerSideResetOffset") == "true"

    async def _is_online(self, address: str, group: str) -> bool:
        try:
            await self.consumer_connection_at(address, group)
        except BrokerRefused as refused:
            if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return False
        return True

    async def _commit_at(self, address: str, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        topic, group, moved = header.topic or "", header.group or "", dict[MessageQueue, int]()
        route = await self.session.route(topic)
        for queue in route.readable:
            if route.address_of(queue.broker_name) != address or header.queue_id not in (-1, queue.queue_id):
                continue
            target = await self._target(queue, header)
            if not header.is_force:
                committed = await self.queue_calls.committed(group, queue)
                target = target if committed is None else min(target, committed)
            await self.queue_calls.commit(group, queue, target)
            moved[queue] = target
        if not moved:
            which = "no queue" if header.queue_id < 0 else f"no queue {header.queue_id}"
            raise BadArgument(f"{address} has {which} of topic {topic!r}; see `twinlog admin topicRoute -t {topic}`")
        return moved

    async def _target(self, queue: MessageQueue, header: ResetOffsetHeader) -> int:
        low, high = await self.queue_calls.min_offset(queue), await self.queue_calls.max_offset(queue)
        if header.offset is not None:
            if not low <= header.offset <= high:
                raise BadArgument(f"offset {header.offset} is not in queue {queue.queue_id}, which has {low} to {high}")
            return header.offset
        if header.timestamp is None or header.timestamp < 0:
            return high
        return await self.queue_calls.offset_at(queue, header.timestamp)
