"""Whether a request may go on: who signed it, and whether the signer may do what it asks for.

`refusal` is for every request; the other methods are for the fast path of sends, which checks signatures itself.
A decision is cached until accounts change, so a changed secret or policy counts from the next request on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twinlog.security.policies import Resource, find_entry
from twinlog.security.request_needs import BETWEEN_BROKERS, Need, needs_of, topic_or_group
from twinlog.security.signatures import ACCESS_KEY, VERSION_SIGNS_QUERY_FLAG, is_signed
from twinlog.security.users import DISABLED, Account, Accounts
from twinlog.settings.access import AccessSettings
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError

_DECISIONS_MAX = 65_536  # cached; when there are more, all are dropped
_PUB = ("Pub",)
_UNKNOWN = "Authorization failed. Please verify your access rights and try again."


class Gate(Protocol):
    """The rules of one server: RocketMQ 5's accounts, or the file of 4.9."""

    code: int
    """Of the answer to a request that may not go on."""

    @property
    def edition(self) -> int:
        """Grows with every change of accounts; what was decided under another edition does not count."""
        ...

    def refusal(self, request: Command, source: str) -> str | None:
        """The remark of the refusal; None when the request may go on."""
        ...

    def signer(self, request: Command) -> str | None:
        """The account that has signed a request; None when nobody has, whatever name the request gives."""
        ...

    def topic_refusal(self, request: Command, topic: str, actions: tuple[str, ...], source: str) -> str | None:
        """The same for a topic that is known only after the request has passed: of the message that it names."""
        ...

    def secret_of(self, name: str) -> bytes | None:
        """The secret with which an enabled account signs."""
        ...

    def may_send(self, name: str, topic: str, source: str) -> bool:
        """Whether an account may send to a topic from an address."""
        ...

    def is_trusted(self, source: str) -> bool:
        """Whether requests from an address need no signature."""
        ...


class AccountGate:
    """RocketMQ 5's access control: users, and policies if authorization is switched on."""

    code: int = ResponseCode.NO_PERMISSION

    def __init__(
        self, settings: AccessSettings, cluster: str, accounts: Callable[[], Accounts], edition: Callable[[], int]
    ) -> None:
        self._accounts = accounts
        self._edition = edition
        self._cluster = cluster
        self._authorizes = settings.authorization
        self._unsigned = settings.codes_without_signature
        self._unchecked = settings.codes_without_permission
        self._decided: dict[tuple[str, str, Resource, tuple[str, ...]], str | None] = {}
        self._decided_at = -1

    @property
    def edition(self) -> int:
        return self._edition()

    def refusal(self, request: Command, source: str) -> str | None:
        fields = request.fields or {}
        account = self._accounts().get(fields.get(ACCESS_KEY, ""))
        remark = _signature_problem(request, account)
        if remark is not None:
            if request.code not in self._unsigned:
                return remark
            account = None  # whoever it says it is
        if request.code in BETWEEN_BROKERS:
            if account is None or not account.is_super:
                return f"{_subject(account)} is not a super user; only brokers ask this (code {request.code})"
            return None
        if not self._authorizes or request.code in self._unchecked:
            return None
        if account is None:
            return _UNKNOWN
        if account.is_super:
            return None
        try:
            needs = needs_of(request.code, fields, request.body, self._cluster)
        except WireError:
            return "parse authorization context error."
        return self._first_refusal(account, needs, source)

    def signer(self, request: Command) -> str | None:
        account = self._accounts().get((request.fields or {}).get(ACCESS_KEY, ""))
        return None if account is None or _signature_problem(request, account) is not None else account.username

    def topic_refusal(self, request: Command, topic: str, actions: tuple[str, ...], source: str) -> str | None:
        if not self._authorizes or request.code in self._unchecked:
            return None
        account = self._accounts().get((request.fields or {}).get(ACCESS_KEY, ""))  # `refusal` has checked it
        if account is None:
            return _UNKNOWN
        return self._decide(account, (topic_or_group(topic), actions), source)

    def secret_of(self, name: str) -> bytes | None:
        account = self._accounts().get(name)
        return None if account is None or account.status == DISABLED else account.secret.encode()

    def may_send(self, name: str, topic: str, source: str) -> bool:
        account = self._accounts().get(name)
        if account is None or account.status == DISABLED:
            return False
        if not self._authorizes or account.is_super:
            return True
        return self._decide(account, (topic_or_group(topic), _PUB), source) is None

    def is_trusted(self, source: str) -> bool:
        return False

    def _first_refusal(self, account: Account, needs: list[Need], source: str) -> str | None:
        for need in needs:
            if (remark := self._decide(account, need, source)) is not None:
                return remark
        return None

    def _decide(self, account: Account, need: Need, source: str) -> str | None:
        if self._decided_at != (edition := self._edition()) or len(self._decided) >= _DECISIONS_MAX:
            self._decided, self._decided_at = {}, edition
        key = (account.username, source, *need)
        if key in self._decided:
            return self._decided[key]
        remark = self._decided[key] = authorize(account, *need, source)
        return remark


def authorize(account: Account, resource: Resource, actions: tuple[str, ...], source: str) -> str | None:
    """Why an account may not do any of `actions` with a resource from an address; None when it may."""
    if account.is_super:
        return None
    entry = find_entry(account.policies, resource, actions, source)
    if entry is None:
        why = "no matched policies."
    elif entry.decision == "Deny":
        why = "the decision is deny."
    else:
        return None
    return f"{account.subject} has no permission to access {resource} from {source}, {why}"


def _signature_problem(request: Command, account: Account | None) -> str | None:
    """Why a request was not signed by the account that it names, in Java's words."""
    fields = request.fields or {}
    name = fields.get(ACCESS_KEY)
    if not name:
        return "username cannot be null."
    if account is None:
        return f"User:{name} is not found."
    if account.status == DISABLED:
        return f"User:{name} is disabled."
    without_flag = request.version < VERSION_SIGNS_QUERY_FLAG
    if not is_signed(fields, request.body, account.secret.encode(), without_flag=without_flag):
        return "check signature failed."
    return None


def _subject(account: Account | None) -> str:
    return "An unknown peer" if account is None else account.subject
