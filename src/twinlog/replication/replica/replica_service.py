"""A replica that follows its master: finds it, joins it safely, copies its log, reports how far it is.

    WAITING --address known--> CONNECTING --joined--> FOLLOWING --lost--> CONNECTING ...
                                   |
                                   +-- must not join --> REFUSED (tried again now and then)

`handshake.py` asks the master, `join.py` decides, `receiver.py` has the connection over which the bytes come.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from twinlog.base.clock import monotonic_ms
from twinlog.net.connecting import below, connecting_to, target_of
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.net.pool import ConnectionPool
from twinlog.net.tls_sockets import secure
from twinlog.replication.errors import JoinRefused, ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master_epoch import SeenEpochs, check_epoch
from twinlog.replication.replica.handshake import Handshake, MasterFacts
from twinlog.replication.replica.join import Begin, LogRange, Refuse, Reseed, decide_join
from twinlog.replication.replica.receiver import Receiver
from twinlog.replication.replica.status import ReplicaStatus
from twinlog.replication.secret import ha_number, is_proven, prove
from twinlog.replication.transfer import encode_pass
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.errors import DamagedTransfer, DispatchFailed, StoreError
from twinlog.store.message_store import MessageStore
from twinlog.telemetry.fence import error_text
from twinlog.telemetry.log import get_logger
from twinlog.wire.errors import WireError

log = get_logger(__name__)
_RETRY_MS_MIN, _RETRY_MS_MAX, _REFUSED_RETRY_MS = 100, 5_000, 10_000
_CONNECT_SECONDS = 5
_REPAIR_MS_MAX = 15_000  # that a join waits for the repair of a damaged record
_LOST = (OSError, NetError, ReplicationError, StoreError, WireError)  # expected of a master, a network or a disk


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    cluster_name: str
    broker_name: str
    broker_id: int
    instance: str


@dataclass(frozen=True, slots=True)
class MasterAddresses:
    """Where the master is; either part may be unknown."""

    ha: str | None = None
    remoting: str | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """This replica's log differs from its master's from `cut_at` on, or goes on where the master's ends."""

    cut_at: int
    master_address: str
    master_epoch: int


class ReplicaService:
    """Follows a master until cancelled."""

    def __init__(
        self,
        settings: Callable[[], ReplicationSettings],
        store: MessageStore,
        identity: ReplicaIdentity,
        pool: ConnectionPool,
        *,
        clock_ms: Callable[[], int],
        ticks_ms: Callable[[], int] = monotonic_ms,
        epochs: SeenEpochs | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._settings = settings
        self._tls = tls  # for the HA port; None: clear text
        self._store = store
        self._identity = identity
        self._pool = pool
        self._clock_ms = clock_ms
        self._ticks_ms = ticks_ms
        self._epochs = epochs
        self._addresses = MasterAddresses()
        self._configured: str | None = None  # the haMasterAddress that was used last
        self._changed = asyncio.Event()
        self._receiver: Receiver | None = None
        self._is_unchecked = False  # joined without asking on the remoting port whether the logs fit
        self.broker_id = identity.broker_id  # a change of role may give another
        self.status = ReplicaStatus()
        self._lost_reason = ""  # as it was logged last
        self._damage: tuple[int, int] | None = None  # a damaged record of this log that a join met, and when first
        self.divergence: Divergence | None = None  # found by the last attempt to join

    @property
    def is_compared(self) -> bool:
        """Whether this replica follows its master, and the end of its log was compared with the master's before."""
        return self.status.is_following and not self._is_unchecked

    @property
    def master_address(self) -> str | None:
        """Where the master answers requests; None while no master is known."""
        ha, remoting = self._addresses.ha, self._addresses.remoting
        return remoting if remoting is not None or ha is None else below(ha, 1)

    def join_now(self) -> None:
        """Try to join at once if this replica waits between two attempts: the master may have changed."""
        self._changed.set()

    def master_is_at(self, addresses: MasterAddresses) -> None:
        """Use these addresses from the name server; a link to another master is closed.

        A configured haMasterAddress has precedence. If neither is known, the last HA address stays in use.
        """
        before, self._configured = self._configured, self._settings().master_address
        is_removed = before is not None and self._configured is None
        kept = None if is_removed else self._addresses.ha
        ha = self._configured or addresses.ha or kept
        addresses = MasterAddresses(ha, addresses.remoting)
        if addresses == self._addresses:
            return
        moved = addresses.ha != self._addresses.ha
        if moved and addresses.remoting is not None:
            self._pool.renew(addresses.remoting)  # one of before, which a cut network may have ended on the other side
        self._addresses = addresses
        self._changed.set()
        if self._receiver is not None:
            if moved:
                self._receiver.end(ReplicationError(f"the master is now at {addresses.ha or 'no known address'}"))
            elif self._is_unchecked and addresses.remoting is not None:
                self._receiver.end(ReplicationError(f"{addresses.remoting} is known now and can compare the logs"))

    def forget_master(self) -> None:
        """Forget the master's addresses; a configured haMasterAddress counts again with the next `run`."""
        self._addresses = MasterAddresses()

    async def run(self) -> None:
        if self._addresses.ha is None:
            self.master_is_at(MasterAddresses())  # haMasterAddress needs no name server
        retry_ms = _RETRY_MS_MIN
        while True:
            self._changed.clear()
            wait_ms = retry_ms
            began, end = self._ticks_ms(), self._store.whole_end
            if self._addresses.ha is None:
                self.status.wait_for_address()
                wait_ms = _REFUSED_RETRY_MS
            else:
                try:
                    await self._follow(self._addresses)
                except JoinRefused as error:
                    if str(error) != self.status.reason:
                        log.error("this replica must not join its master", reason=str(error))
                    self.status.refuse(str(error))
                    wait_ms = _REFUSED_RETRY_MS
                except DispatchFailed:
                    raise
                except _LOST as error:
                    if str(error) != self._lost_reason:
                        log.warning("the master was lost", master=self._addresses.ha, reason=str(error))
                    self._lost_reason = str(error)
                    self.status.damaged_transfers += isinstance(error, DamagedTransfer)
                    self.status.connect(str(error))
                    retry_ms = _RETRY_MS_MIN if self._went_well(began, end) else min(retry_ms * 2, _RETRY_MS_MAX)
                    wait_ms = retry_ms
                except Exception as error:
                    self.status.connect(error_text(error))
                    raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()

    def _went_well(self, began_ms: int, whole_end: int) -> bool:
        """Whether a link that is lost now brought bytes, or lasted: then the next attempt follows at once.

        Otherwise pauses grow: a master that closes every link, or a full disk here, is not tried ten times a second.
        """
        return self._store.whole_end > whole_end or self._ticks_ms() - began_ms >= _RETRY_MS_MAX

    async def _follow(self, addresses: MasterAddresses) -> None:
        assert addresses.ha is not None
        status, store = self.status, self._store
        status.master_ha_address = addresses.ha
        status.connect(f"to {addresses.ha}")
        store.drop_partial_record()
        try:
            facts = await self._join(addresses)
        except RequestTimeout:
            self._pool.renew(addresses.remoting or below(addresses.ha, 1))  # perhaps only the connection is dead
            raise
        self._is_unchecked = facts is None
        status.master_is_twinlog = facts.is_twinlog if facts else None
        status.master_end = facts.log.end if facts else None
        target = target_of(addresses.ha)
        connected = socket.socket(socket.AF_INET6 if ":" in target.host else socket.AF_INET)
        connected.setblocking(False)
        try:
            with connecting_to(addresses.ha):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(connected, (target.host, target.port))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                with connecting_to(addresses.ha):
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        connected = await secure(connected, self._tls(), host=target.host)
            first_word = self._first_word(facts)
            awaited = facts is not None and facts.awaits_replicas
            self._receiver = Receiver(
                connected, store, self._settings, status, self._clock_ms, self._ticks_ms, first_word, awaited
            )
            self._lost_reason = ""
            status.follow(_unchecked(addresses.ha) if facts is None and store.log_end else "")
            log.info(
                "following",
                master=addresses.ha,
                log_end=store.log_end,
                twinlog=status.master_is_twinlog,
                **({"warning": status.reason} if status.reason else {}),
            )
            await self._receiver.over
        finally:
            receiver, self._receiver = self._receiver, None
            with contextlib.closing(connected):
                if receiver is not None:
                    receiver.stop()

    def _first_word(self, facts: MasterFacts | None) -> bytes:
        if facts is None or facts.pass_number is None:
            return b""
        return encode_pass(ha_number(self._settings().shared_secret, facts.pass_number))

    async def _join(self, addresses: MasterAddresses) -> MasterFacts | None:
        """Check that joining is safe, and prepare the log for it; None when the master cannot be asked."""
        store, settings = self._store, self._settings()
        address = addresses.remoting
        if address is None:
            address = await self._usual_address(addresses, settings)
            if address is None:
                return None
        if settings.shared_secret is not None:
            await prove(await self._pool.get(address), settings.shared_secret)
        ours = LogRange(store.log_start, store.log_end)
        handshake = Handshake(self._pool, address, store, self._met_damage)
        facts = await handshake.facts(self._hello(ours, settings))
        if settings.shared_secret is not None and not is_proven(await self._pool.get(address)):
            raise ReplicationError(f"the connection to {address} was lost, and with it the proof of haSharedSecret")
        if self._epochs is not None and facts.is_twinlog:
            check_epoch(address, facts.master_epoch, self._epochs)
        self.divergence = None
        plan = decide_join(
            ours,
            facts.log,
            segment_bytes=store.settings.segment_bytes,
            master_segment_bytes=facts.segment_bytes,
            differs_at=facts.differs_at,
            whole_history=settings.copy_whole_history,
            reseed_allowed=settings.reseed_allowed,
            store=shlex.quote(store.settings.root_dir),
        )
        if isinstance(plan, Refuse):
            if plan.cut_at is not None and facts.is_twinlog:
                self.divergence = Divergence(plan.cut_at, address, facts.master_epoch)
            raise JoinRefused(plan.reason)
        if isinstance(plan, Reseed):
            log.warning(
                "the log is set aside and begun anew",
                missing_from=plan.missing.start,
                missing_to=plan.missing.end,
            )
            store.set_log_aside(self._clock_ms())
        if isinstance(plan, Begin | Reseed) and settings.copy_whole_history and not facts.is_twinlog:
            await self._begin_java_history(handshake, facts.log)
        return facts

    async def _usual_address(self, addresses: MasterAddresses, settings: ReplicationSettings) -> str | None:
        """With haMasterAddress alone, the usual port of a broker, one below its HA port; None when nothing answers."""
        assert addresses.ha is not None
        address = below(addresses.ha, 1)
        try:
            await self._pool.get(address)
        except NetError as error:
            if settings.shared_secret is not None:  # without an answer there is no proof
                raise ReplicationError(f"{address} cannot be asked for a proof of haSharedSecret: {error}") from error
            return None
        return address

    def _hello(self, ours: LogRange, settings: ReplicationSettings) -> HelloHeader:
        identity = self._identity
        return HelloHeader(
            cluster_name=identity.cluster_name,
            broker_name=identity.broker_name,
            broker_id=self.broker_id,
            instance=identity.instance,
            log_start=ours.start,
            log_end=ours.end,
            segment_bytes=self._store.settings.segment_bytes,
            whole_history=settings.copy_whole_history,
            master_epoch=self._epochs.now.seen if self._epochs is not None else None,
        )

    def _met_damage(self, physical_offset: int) -> bool:
        """Note a damaged record, so that it is repaired; returns whether the join waits for that."""
        now_ms = self._ticks_ms()
        if self._damage is None or self._damage[0] != physical_offset:
            self._damage = (physical_offset, now_ms)
        self._store.note_damage(physical_offset)
        return now_ms - self._damage[1] < _REPAIR_MS_MAX

    async def _begin_java_history(self, handshake: Handshake, master: LogRange) -> None:
        """Store the master's first record: a Java master that is asked for offset 0 starts at its last file."""
        if master.is_empty:
            return
        first = await handshake.record(master.start)
        if first is None:
            raise ReplicationError(f"the master does not return the first record of its log, at {master.start}")
        self._store.append_raw(master.start, first)
        self._store.dispatch_pending()


def _unchecked(ha_address: str) -> str:
    return (
        f"the logs were not compared: {below(ha_address, 1)} does not answer; open the master's listenPort to this "
        "replica, or give it the namesrvAddr that knows the master"
    )
