"""The brokers that share this broker's name, as the name servers know them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.addresses import is_address
from twinlog.net.errors import NetError
from twinlog.wire.bodies import BrokerMemberGroupBody, ClusterInfo, HaRuntimeInfo, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.pool import ConnectionPool

_TIMEOUT_S = 3.0
_RIVAL_TIMEOUT_S = 0.5


class _Epoch(msgspec.Struct):
    """The part of a replication status that is read here."""

    epoch: int = 0


class MemberGroup:
    """Asks the name servers for the brokers of this name."""

    def __init__(self, ctx: BrokerContext, pool: ConnectionPool, name_servers: Callable[[], Sequence[str]]) -> None:
        self._ctx = ctx
        self._pool = pool
        self._name_servers = name_servers

    async def members(self, timeout_s: float = _TIMEOUT_S) -> list[dict[int, str]]:
        """Id to address, from each name server that answers; one that does not answer is left out."""
        answers = await asyncio.gather(*(self._ask(address, timeout_s) for address in self._name_servers()))
        known = [members for members in answers if members is not None]
        return [{number: text for number, text in members.items() if is_address(text)} for members in known]

    async def free_id(self) -> int:
        """The lowest id above 0 that no broker is registered with."""
        taken = {number for members in await self.members() for number in members}
        return next(number for number in range(1, len(taken) + 2) if number not in taken)

    async def rival(self, broker_id: int, *, patiently: bool = False) -> str | None:
        """The address of another broker that is registered with this id and answers; a master, if the id is 0."""
        for members in await self.members(_TIMEOUT_S if patiently else _RIVAL_TIMEOUT_S):
            address = members.get(broker_id)
            if address is not None and address != self._ctx.settings.address and await self._serves(address, broker_id):
                return address
        return None

    async def lists_me(self) -> bool:
        """Whether a name server has this broker as the master of its name."""
        return any(known.get(0) == self._ctx.settings.address for known in await self.members(_RIVAL_TIMEOUT_S))

    async def highest_epoch(self) -> tuple[int, str]:
        """(the highest epoch that another broker of this name knows of, its address); (0, "") when none answers."""
        own = self._ctx.settings.address
        others = {text for known in await self.members() for text in known.values()} - {own}
        asked = sorted(others)
        epochs = await asyncio.gather(*(self.master_epoch(one) for one in asked))
        return max(zip(epochs, asked, strict=True), default=(0, ""))

    async def master_epoch(self, address: str) -> int:
        """The epoch of the master at `address`; 0 for a Java master, and for one that does not answer."""
        try:
            answer = await self._pool.request(address, TwinlogCode.REPLICATION_STATUS)
            return msgspec.json.decode(answer.body or b"", type=_Epoch).epoch
        except (NetError, ValueError):
            return 0

    async def _ask(self, name_server: str, timeout_s: float) -> dict[int, str] | None:
        settings = self._ctx.settings
        fields = {"clusterName": settings.cluster_name, "brokerName": settings.broker_name}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._pool.request(name_server, RequestCode.GET_BROKER_MEMBER_GROUP, fields)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # a 4.9 name server
                    answer = await self._pool.request(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
                    known = decode_body(ClusterInfo, answer.body).broker_addr_table.get(settings.broker_name)
                    return {} if known is None else known.broker_addrs
                if answer.code == ResponseCode.SUCCESS:
                    return decode_body(BrokerMemberGroupBody, answer.body).broker_member_group.broker_addrs
        except (NetError, WireError, OSError):  # TimeoutError is an OSError
            pass
        return None

    async def _serves(self, address: str, broker_id: int) -> bool:
        try:
            answer = await self._pool.request(address, RequestCode.GET_BROKER_HA_STATUS)
            if answer.code == ResponseCode.SUCCESS:
                return broker_id != 0 or decode_body(HaRuntimeInfo, answer.body).master
            answer = await self._pool.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)  # 4.9 has only this one
        except (NetError, WireError):
            return False
        return answer.code == ResponseCode.SUCCESS
