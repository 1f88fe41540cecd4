"""The other brokers of this broker's name, as the name servers know them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twinlog.net.errors import NetError
from twinlog.wire.bodies import BrokerMemberGroupBody, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.pool import ConnectionPool


class MemberGroup:
    """Asks name servers who belongs to this broker name."""

    def __init__(self, ctx: BrokerContext, pool: ConnectionPool, name_servers: Callable[[], Sequence[str]]) -> None:
        self._ctx = ctx
        self._pool = pool
        self._name_servers = name_servers

    async def members(self) -> list[dict[int, str]]:
        """Id to address, from each name server that knows the request; NetError when one cannot be reached."""
        settings = self._ctx.settings
        fields = {"clusterName": settings.cluster_name, "brokerName": settings.broker_name}
        found = []
        for name_server in self._name_servers():
            answer = await self._pool.request(name_server, RequestCode.GET_BROKER_MEMBER_GROUP, fields)
            if answer.code == ResponseCode.SUCCESS:
                found.append(decode_body(BrokerMemberGroupBody, answer.body).broker_member_group.broker_addrs)
        return found

    async def free_id(self) -> int:
        """The lowest id above 0 that nobody is registered with."""
        taken: set[int] = set()
        with contextlib.suppress(NetError, WireError, OSError):
            for members in await self.members():
                taken |= members.keys()
        return next(number for number in range(1, len(taken) + 2) if number not in taken)

    async def rival(self) -> str | None:
        """The address of another broker that is registered with our id and answers."""
        settings = self._ctx.settings
        with contextlib.suppress(NetError, WireError, OSError):
            for members in await self.members():
                address = members.get(settings.broker_id)
                if address is not None and address != settings.address and await self._answers(address):
                    return address
        return None

    async def _answers(self, address: str) -> bool:
        try:
            answer = await self._pool.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except NetError:
            return False
        return answer.code == ResponseCode.SUCCESS
