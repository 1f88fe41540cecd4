"""Whether the broker that holds a name, an id or an address is still there, before another one takes it.

Anybody can send a registration. It takes nothing away from a broker that answers: the name server asks the holder over
the connection on which it registered. A holder that has restarted elsewhere has closed that connection, and one whose
machine is gone does not answer. Java brokers answer every request, if only that they do not know it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from twinlog.nameserver.registration import LiveKey, RegisteredBroker
from twinlog.net.connection import Connection, Request
from twinlog.net.errors import NetError, RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.net.limits import Limits
    from twinlog.wire.command import Command

log = get_logger(__name__)
Holder = tuple[LiveKey, RegisteredBroker]
TIMEOUT_MS = 1_500
REFUSED = "refusedRegistrations"  # not a setting: the label of the metric


class HolderCheck:
    """Asks holders, each at most once at a time however many registrations wait for its answer."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._contests: dict[str, set[asyncio.Future[None]]] = {}  # by broker name
        self._asking: dict[tuple[int, str, int], asyncio.Task[Command | None]] = {}

    @contextlib.contextmanager
    def contest(self, holders: list[Holder]) -> Generator[None]:
        """Open while holders are asked and their answers applied; `member_group` answers after that."""
        names = {holder.broker_name for _, holder in holders}
        decided = asyncio.get_running_loop().create_future()
        for name in names:
            self._contests.setdefault(name, set()).add(decided)
        try:
            yield
        finally:
            decided.set_result(None)
            for name in names:
                open_ones = self._contests[name]
                open_ones.discard(decided)
                if not open_ones:
                    del self._contests[name]

    def contests(self, name: str) -> set[asyncio.Future[None]]:
        """The contests for a name that are not decided yet."""
        return set(self._contests.get(name, ()))

    async def check(self, request: Request, holders: list[Holder], what: str) -> None:
        """RequestRefused when one of `holders` is still there."""
        for (_, address), holder in holders:
            if not await self._is_there(holder):
                continue
            self._limits.count(REFUSED)
            log.warning(
                "a live broker's identity was asked for, and is kept",
                request=what,
                broker=holder.broker_name,
                id=holder.broker_id,
                address=address,
                peer=request.connection.peer_text,
            )
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{what}: brokerName={holder.broker_name} brokerId={holder.broker_id} is held by {address}, which "
                "answers; give this broker another brokerId, or stop the other one",
            )

    async def _is_there(self, holder: RegisteredBroker) -> bool:
        connection = holder.connection
        if not isinstance(connection, Connection) or connection.closed:
            return False
        key = (id(connection), holder.broker_name, holder.broker_id)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(_ask(connection, holder))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        answer = await asyncio.shield(asking)
        if answer is None:
            return False
        # A Twinlog broker answers with what it is now: it may have changed its role, and not yet registered it.
        now = (answer.fields or {}).get("brokerId")
        return now is None or now == str(holder.broker_id)


async def _ask(connection: Connection, holder: RegisteredBroker) -> Command | None:
    fields = {"brokerName": holder.broker_name, "brokerId": str(holder.broker_id)}
    try:
        return await connection.request(TwinlogCode.STILL_REGISTERED, fields, timeout_ms=TIMEOUT_MS)
    except NetError:
        return None
