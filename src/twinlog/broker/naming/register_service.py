"""Registers the broker with its name servers: at the start, in intervals and when topics change; and unregisters."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.addresses import is_address, split_addresses
from twinlog.broker.naming.registration import PAUSE_ROWS, RegisterRequest, plan_registration
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import DataVersion, KVTable, TopicConfig, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import BrokerIdentityHeader, RegisterBrokerResponseHeader

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Request
    from twinlog.net.pool import ConnectionPool
    from twinlog.wire.command import Command

log = get_logger(__name__)
FIRST_PERIOD_S = 10.0
RETRY_S = 3.0  # while a name server cannot be reached
IN_DOUBT = "in doubt"
HANGS_S = 3.0  # a name server that has not answered for so long is asked over a new connection when the role changes
UNREGISTER_TIMEOUT_MS = 1_000
ANNOUNCE_S_MAX = 2.0  # shorter than the timeout of a client that sends or creates a topic


class RegisterService:
    """Keeps a broker registered with all its name servers. The connections stay open: closing one unregisters."""

    def __init__(self, ctx: BrokerContext, pool: ConnectionPool) -> None:
        self._ctx = ctx
        self._pool = pool
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._whole = False
        self._unreachable: set[str] = set()  # or they refuse: asked again soon
        self._asked_s: dict[str, float] = {}  # since when a registration waits for an answer, by name server
        self._bad_address = ""  # the last one that was logged
        self._changes = self._changes_announced = 0  # how many changes of topics there were
        self._next_announcement = asyncio.Event()
        ctx.topic_listeners.append(self._topics_changed)
        ctx.wait_until_announced = self.wait_until_announced

    @property
    def name_servers(self) -> list[str]:
        return split_addresses(self._ctx.settings.namesrv_addr or "")

    def register_soon(self) -> None:
        """Register everything again: the permission, the role or an address has changed.

        A registration that hangs, since a network was cut, would hold a failover up until its timeout.
        """
        for address, since_s in list(self._asked_s.items()) if self._ctx.master_is_chosen else ():
            if asyncio.get_running_loop().time() - since_s > HANGS_S:
                self._pool.drop(address)
        self._whole = True
        self._wake.set()

    async def wait_until_announced(self) -> None:
        """Return once the name servers know every topic change so far, or one of them is too slow.

        A client that creates a topic asks for its route next, and a Java client that gets none asks again after 30 s.
        """
        changes = self._changes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANNOUNCE_S_MAX):
                while self._changes_announced < changes and self.name_servers and self.hidden_s <= 0:
                    await self._next_announcement.wait()

    @property
    def hidden_s(self) -> float:
        """Seconds until this broker may register (disappearTimeAfterStart)."""
        ctx = self._ctx
        return (ctx.started_ms + ctx.settings.disappear_ms_after_start - ctx.clock_ms()) / 1000

    async def register_first(self) -> None:
        """The registration that ends start-up."""
        if self.hidden_s <= 0:
            await self.register_all()

    async def run(self) -> None:
        if self.hidden_s > 0:
            await asyncio.sleep(self.hidden_s)
            await self.register_all()
        period_s = FIRST_PERIOD_S
        while True:
            wait_s = min(RETRY_S, period_s) if self._unreachable else period_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                self._whole = True
                period_s = self._ctx.settings.register_interval_ms / 1000
            self._wake.clear()
            changed, self._changed = self._changed, set()
            whole, self._whole = self._whole, False
            changes = self._changes
            try:
                if whole:
                    await self.register_all()
                elif changed:
                    await self._register_changed(changed)
            except Exception:
                self.register_soon()  # what was registered is unknown: everything again, after the fence's pause
                raise
            self._changes_announced = changes
            announcement, self._next_announcement = self._next_announcement, asyncio.Event()
            announcement.set()

    async def register_all(self) -> None:
        """Send the whole topic table to every name server."""
        await self._register(self._ctx.topics.rows, whole=True)

    async def unregister(self) -> None:
        """Leave the routes at once, without waiting until the name servers find this broker silent."""
        fields = self._identity_fields()

        async def unregister_from(address: str) -> None:
            try:
                await self._pool.request(address, RequestCode.UNREGISTER_BROKER, fields, None, UNREGISTER_TIMEOUT_MS)
            except NetError as error:
                log.info("cannot unregister from a name server", address=address, error=str(error))

        await asyncio.gather(*(unregister_from(address) for address in self.name_servers))

    def still_registered(self, request: Request) -> Command:
        """A name server asks, since somebody else registers or unregisters as this broker.

        A master in doubt claims nothing: while it was stopped, the other one may have replaced it.
        """
        asked, settings = request.fields or {}, self._ctx.settings
        if not self._ctx.guard.is_valid:
            return request.reply(fields={"brokerId": IN_DOUBT})
        if asked.get("brokerId") == str(settings.broker_id):
            text = "another peer uses this broker's name, id or address; a name server refuses it"
            log.warning(text, name_server=request.connection.peer_text, id=settings.broker_id)
        return request.reply(fields={"brokerName": settings.broker_name, "brokerId": str(settings.broker_id)})

    def _identity_fields(self) -> dict[str, str]:
        settings = self._ctx.settings
        header = BrokerIdentityHeader(
            broker_name=settings.broker_name,
            broker_addr=settings.address,
            cluster_name=settings.cluster_name,
            broker_id=settings.broker_id,
        )
        return encode_fields(header)

    async def _register_changed(self, names: set[str]) -> None:
        topics = self._ctx.topics.rows
        rows = {name: topics[name] for name in names if name in topics}
        if rows and not await self._register(rows, whole=False):
            # Java's name server refuses a single topic of a broker it does not know.
            await self.register_all()

    async def _register(self, rows: Mapping[str, TopicConfig], *, whole: bool) -> bool:
        """Whether every reachable name server accepted `rows`."""
        version = self._ctx.topics.version
        rows = dict(rows)
        making, made = asyncio.Lock(), list[RegisterRequest]()

        async def requests() -> list[RegisterRequest]:
            async with making:  # all name servers get the same ones
                if not made:
                    made.extend(await self._plan(rows, version))
            return made

        results = await asyncio.gather(
            *(self._register_with(address, requests, version, whole=whole) for address in self.name_servers)
        )
        answers = [answer for answer in results if answer is not None]
        accepted = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        if accepted:
            # A name server that has just started may not know the master yet.
            self._adopt(next((one for one in accepted if "masterAddr" in (one.fields or {})), accepted[0]), whole=whole)
        return len(accepted) == len(answers)

    async def _plan(self, rows: Mapping[str, TopicConfig], version: DataVersion) -> list[RegisterRequest]:
        conf = self._ctx.conf
        if len(rows) <= PAUSE_ROWS:
            return list(plan_registration(conf, rows, version))
        # 100,000 topics take more than 0.1 s.
        return await self._ctx.table_work.in_order(
            "registration", lambda: list(plan_registration(conf, rows, version, pause=lambda: time.sleep(0)))
        )

    async def _register_with(
        self,
        address: str,
        requests: Callable[[], Awaitable[list[RegisterRequest]]],
        version: DataVersion,
        *,
        whole: bool,
    ) -> Command | None:
        """The name server's last answer; None when it cannot be reached."""
        ctx = self._ctx
        answer = None
        self._asked_s[address] = asyncio.get_running_loop().time()
        try:
            # A replica always registers: the answer has its master's address.
            asks_first = ctx.is_master and not ctx.settings.register_always
            if whole and asks_first and not await self._lacks(address, version):
                return None
            for part in await requests():
                timeout_ms = ctx.settings.register_timeout_ms
                answer = await self._pool.request(
                    address, RequestCode.REGISTER_BROKER, part.fields, part.body, timeout_ms
                )
                if answer.code != ResponseCode.SUCCESS:
                    if address not in self._unreachable:
                        text = "a name server refuses the registration"
                        log.warning(text, address=address, code=answer.code, remark=answer.remark)
                    if whole:  # the broker that holds this id may be about to leave it
                        self._unreachable.add(address)
                    return answer
        except NetError as error:
            if address not in self._unreachable:
                log.warning("a name server cannot be reached; trying again", address=address, error=str(error))
            self._unreachable.add(address)
            if isinstance(error, RequestTimeout):
                self._pool.renew(address)  # perhaps only the connection is dead
            return None
        finally:
            self._asked_s.pop(address, None)
        if address in self._unreachable:
            self._unreachable.discard(address)
            log.info("registered again", address=address)
        return answer

    async def _lacks(self, address: str, version: DataVersion) -> bool:
        """With forceRegister=false: whether the name server does not have this version of the topics."""
        answer = await self._pool.request(
            address,
            RequestCode.QUERY_DATA_VERSION,
            self._identity_fields(),
            encode_body(version),
            self._ctx.settings.register_timeout_ms,
        )
        return answer.code != ResponseCode.SUCCESS or (answer.fields or {}).get("changed", "true") == "true"

    def _adopt(self, answer: Command, *, whole: bool) -> None:
        """Adopt a name server's answer: a replica its master's address, a master which topics are ordered."""
        ctx = self._ctx
        if not ctx.is_master and ctx.master_is_chosen:
            return
        if not ctx.is_master:
            header = decode_fields(RegisterBrokerResponseHeader, answer.fields)
            ctx.master_address = self._usable(header.master_addr)
            ctx.master_ha_address = self._usable(header.ha_server_addr)
            for listener in ctx.master_listeners:
                listener()
            return
        if not whole or not answer.body:
            return
        try:
            ordered = decode_body(KVTable, answer.body).table
        except WireError as error:
            log.warning("a name server's list of ordered topics does not parse", error=str(error))
            return
        rows = {name: row for name in ordered if (row := ctx.topics.get(name)) is not None and not row.order}
        changed = {name: msgspec.structs.replace(row, order=True) for name, row in rows.items()}
        ctx.topics.put_all(changed, ctx.clock_ms())

    def _usable(self, address: str | None) -> str | None:
        """`address` if it is host:port; a foreign name server may send anything."""
        if not address or is_address(address):
            return address or None
        if address != self._bad_address:
            self._bad_address = address
            log.warning("a name server sends an address of the master that is not host:port", address=address[:80])
        return None

    def _topics_changed(self, names: tuple[str, ...]) -> None:
        self._changed.update(names)
        self._changes += 1
        self._wake.set()
