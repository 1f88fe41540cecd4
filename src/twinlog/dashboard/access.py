"""Who looks at the pages: everybody while the brokers use no accounts, else whoever signed in.

Secrets and sessions are in memory only. A session ends after an hour without a request, or half a day after it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from twinlog.base.clock import wall_clock_ms
from twinlog.client import BrokerRefused, ClientError, Credentials
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.clients import Changer, open_changer, reading_admin
from twinlog.dashboard.observer_service import Observer, is_refusal
from twinlog.dashboard.settings import DashboardSettings
from twinlog.observe.cluster.broker_groups import registered_groups
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
ATTEMPTS_MAX = 10  # failed ones, of one address in a minute
_ATTEMPTS_MS = 60_000
_ADDRESSES_MAX = 1_000
_SESSIONS_MAX = 1_000
_REFUSED = "NO_PERMISSION"
_pause = asyncio.sleep  # a test replaces this one, and nobody else's


class SignInFailed(ClientError):
    """The account is not accepted; the message is for the person who tried."""


class SessionEnded(ClientError):
    """Whoever wants to change something has to sign in first."""


class IsReadOnly(ClientError):
    """The dashboard was started with --read-only."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asked for a page."""

    observer: Observer
    read_only: bool
    token: str | None = None

    @property
    def account(self) -> str:
        """The access key; empty without accounts."""
        return self.observer.credentials.access_key if self.observer.credentials is not None else ""


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    began_ms: int
    seen_ms: int


class Access:
    """Decides who may look. `start` runs an observer's service, until the returned function is called."""

    def __init__(
        self,
        settings: DashboardSettings,
        start: Callable[[Observer], Callable[[], None]],
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings, self._start, self._clock_ms = settings, start, clock_ms
        self._sessions: dict[str, _Session] = {}
        self._observers: dict[Credentials, tuple[Observer, Callable[[], None]]] = {}
        self._attempts: dict[str, list[int]] = {}  # when those began that failed, or have not ended
        self.login_required = False
        self.under_way: set[str] = set()  # groups of brokers in which something is being changed
        self._anyone = Visitor(Observer(settings, settings.options.credentials), settings.read_only)
        self._stop_anyone: Callable[[], None] | None = None

    def begin(self, *, login_required: bool) -> None:
        self.login_required = login_required and self._settings.options.credentials is None
        if not self.login_required:
            self._anyone.observer.on_round = self._watch_refusals
            self._stop_anyone = self._start(self._anyone.observer)

    def visitor(self, token: str | None) -> Visitor | None:
        """Who has this token; None if it is unknown or its time is over, and accounts are in use."""
        if not self.login_required:
            return self._anyone
        session, now_ms = self._sessions.get(token or ""), self._clock_ms()
        if session is None:
            return None
        idle_ms, age_ms = now_ms - session.seen_ms, now_ms - session.began_ms
        if idle_ms > self._settings.session_idle_ms or age_ms > self._settings.session_ms_max:
            self.sign_out(token)
            return None
        session.seen_ms = now_ms
        return session.visitor

    @contextlib.asynccontextmanager
    async def changer(self, visitor: Visitor) -> AsyncIterator[Changer]:
        """The only means to change the cluster; IsReadOnly or SessionEnded for a visitor who may not have it."""
        if self._settings.read_only or visitor.read_only:
            raise IsReadOnly("the dashboard is read-only: nothing was changed; start it without --read-only")
        if self.visitor(visitor.token) is not visitor:
            raise SessionEnded("the session has ended: nothing was changed; sign in again")
        async with open_changer(self._settings, visitor.observer.credentials) as changer:
            yield changer

    def is_open(self, token: str | None) -> bool:
        """Whether a page that shows this visitor's data may go on; does not count as a request."""
        session, now_ms = self._sessions.get(token or ""), self._clock_ms()
        if not self.login_required:
            return True
        return (
            session is not None
            and now_ms - session.seen_ms <= self._settings.session_idle_ms
            and now_ms - session.began_ms <= self._settings.session_ms_max
        )

    async def sign_in(self, access_key: str, secret_key: str, peer: str) -> str:
        """A token for this account; SignInFailed if no broker accepts it."""
        if not self.login_required:  # every account would be taken, and each has the whole cluster asked
            raise SignInFailed("the brokers use no accounts: nobody needs to sign in")
        if not access_key or not secret_key:
            raise SignInFailed("enter an access key and its secret key")
        attempt_ms = self._begin_attempt(peer)
        credentials = Credentials(access_key, secret_key)
        try:
            await self._try_account(credentials)
        except SignInFailed:
            log.warning("a sign-in failed", peer=peer)
            await _pause(1.0)  # guessing is slow
            raise
        if attempt_ms in (attempts := self._attempts.get(peer, [])):
            attempts.remove(attempt_ms)
        observer = self._observer(credentials)
        token, now_ms = secrets.token_urlsafe(32), self._clock_ms()
        self._sessions[token] = _Session(Visitor(observer, self._settings.read_only, token), now_ms, now_ms)
        while len(self._sessions) > _SESSIONS_MAX:
            self.sign_out(next(iter(self._sessions)))
        log.info("signed in", account=access_key, peer=peer)
        return token

    def sign_out(self, token: str | None) -> None:
        session = self._sessions.pop(token or "", None)
        if session is None:
            return
        credentials = session.visitor.observer.credentials
        if credentials is not None and not any(
            one.visitor.observer.credentials == credentials for one in self._sessions.values()
        ):
            self._observers.pop(credentials)[1]()

    def end_old_sessions(self) -> None:
        for token in [token for token in self._sessions if not self.is_open(token)]:
            self.sign_out(token)

    def _observer(self, credentials: Credentials) -> Observer:
        known = self._observers.get(credentials)
        if known is None:
            observer = Observer(self._settings, credentials)
            known = self._observers[credentials] = (observer, self._start(observer))
        return known[0]

    def _begin_attempt(self, peer: str) -> int:
        """Count it before its end is known: many may be under way at the same time."""
        now_ms = self._clock_ms()
        recent = [at for at in self._attempts.pop(peer, ()) if now_ms - at < _ATTEMPTS_MS]
        self._attempts[peer] = recent
        while len(self._attempts) > _ADDRESSES_MAX:
            self._attempts.pop(next(iter(self._attempts)))
        if len(recent) >= ATTEMPTS_MAX:
            raise SignInFailed("too many attempts from your address; wait a minute")
        recent.append(now_ms)
        return now_ms

    async def _try_account(self, credentials: Credentials) -> None:
        """Some broker must answer a signed request, and refuse it with another secret.

        Name servers often check no signatures, nor does a broker without accounts, or one that trusts this machine.
        """
        reason = "no broker answers; look at the cluster first"
        wrong = Credentials(credentials.access_key, secrets.token_hex(16))
        async with reading_admin(self._settings, credentials) as admin:
            try:
                groups = await registered_groups(admin)
                for address in (member.address for group in groups for member in group.members):
                    try:
                        await admin.runtime_info(address)
                        if await self._is_refused(address, wrong):
                            return
                        reason = f"{address} answers whatever the secret is, so it does not prove who you are"
                    except BrokerRefused as refused:
                        if is_refusal(refused):
                            raise
                        reason = str(refused)
                    except REQUEST_FAILURES as error:
                        reason = str(error)
            except BrokerRefused as refused:
                raise SignInFailed(f"the cluster refuses this account: {refused.remark}") from refused
            except REQUEST_FAILURES as error:
                raise SignInFailed(str(error)) from error
        raise SignInFailed(reason)

    async def _is_refused(self, address: str, credentials: Credentials) -> bool:
        async with reading_admin(self._settings, credentials) as admin:
            try:
                await admin.runtime_info(address)
            except BrokerRefused as refused:
                return is_refusal(refused)
        return False

    def _watch_refusals(self, observer: Observer) -> None:
        """Accounts may be switched on while the dashboard runs: then everybody has to sign in."""
        if observer.credentials is not None:
            return
        errors = [member.error for group in observer.survey.groups for member in group.members]
        errors.append(observer.view.error if observer.view is not None else "")
        if any(_REFUSED in one for one in errors) and self._stop_anyone is not None:
            log.warning("the brokers use accounts now: everybody has to sign in")
            self.login_required = True
            self._stop_anyone()
            self._stop_anyone = None
