"""RocketMQ 4.9's accounts: what plain_acl.yml holds, and what it allows.

    globalWhiteRemoteAddresses:     # need no signature
      - 10.10.103.*
    accounts:
      - accessKey: name             # 7 characters or more, as the secret
        secretKey: "12345678"
        whiteRemoteAddress:         # requests from here need no signature, if they name this account
        admin: false
        defaultTopicPerm: DENY      # DENY, PUB, SUB, PUB|SUB
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY]   # written as a list, one on each line
        groupPerms: [groupA=SUB]

Remarks are those of 4.9.7, which answers with SYSTEM_ERROR and the name of its exception.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.base.system_names import RETRY_PREFIX, TRACE_TOPIC
from twinlog.security.errors import AccountsBroken
from twinlog.security.policies import Resource
from twinlog.security.request_needs import BETWEEN_BROKERS, GET, Need, needs_of, topic_or_group
from twinlog.security.signatures import ACCESS_KEY, is_signed
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError
from twinlog.wire.twinlog_codes import TwinlogCode

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
_PERMS = {"PUB": {"Pub"}, "SUB": {"Sub"}, "PUB|SUB": {"Pub", "Sub"}, "SUB|PUB": {"Pub", "Sub"}}
_LENGTH_MIN = 7
# Java's five, and what else changes a broker; there, any account may do that.
ADMIN_CODES = frozenset(
    int(code)
    for code in (*Code, *TwinlogCode)
    if code.name.startswith(("UPDATE_AND_", "UPDATE_BROKER", "DELETE_", "CLEAN_", "RESET_", "INVOKE_BROKER_TO_RESET"))
    or code in (Code.CLONE_GROUP_OFFSET, Code.SET_MESSAGE_REQUEST_MODE, TwinlogCode.CHANGE_ROLE)
    or code.name.startswith("AUTH_")
)


@dataclass(frozen=True, slots=True)
class PlainAccount:
    name: str
    secret: str = field(repr=False)
    is_admin: bool = False
    white_address: str = ""
    default_topic: frozenset[str] = frozenset()
    default_group: frozenset[str] = frozenset()
    perms: Mapping[Resource, frozenset[str]] = field(default_factory=dict[Resource, frozenset[str]])


@dataclass(frozen=True, slots=True)
class PlainRules:
    """What the files hold."""

    accounts: Mapping[str, PlainAccount] = field(default_factory=dict[str, PlainAccount])
    white_addresses: tuple[str, ...] = ()


def read_rules(document: Mapping[str, object], source: str) -> PlainRules:
    """The rules in the content of one file; AccountsBroken names what is wrong, and never a secret."""
    try:
        addresses = tuple(_texts(document.get("globalWhiteRemoteAddresses")))
        for address in addresses:
            _check_address(address)
        given = document.get("accounts") or []
        if not isinstance(given, list):
            raise ValueError("accounts is not a list")
        accounts = [_account(one) for one in given]  # pyright: ignore[reportUnknownVariableType]
    except ValueError as error:
        raise AccountsBroken(f"{source}: {error}") from None
    by_name = {one.name: one for one in accounts}
    if len(by_name) != len(accounts):
        raise AccountsBroken(f"{source}: an accessKey is there twice")
    return PlainRules(by_name, addresses)


def _account(given: object) -> PlainAccount:
    if not isinstance(given, dict):
        raise ValueError("an account is not a list of keys and values")
    keys: dict[str, object] = given  # pyright: ignore[reportUnknownVariableType]
    name, secret = (str(keys.get(key) or "") for key in ("accessKey", "secretKey"))
    if len(name) < _LENGTH_MIN or len(secret) < _LENGTH_MIN:
        raise ValueError(f"accessKey {name!r} and its secretKey need at least {_LENGTH_MIN} characters")
    address = str(keys.get("whiteRemoteAddress") or "")
    _check_address(address)
    perms = {Resource("Topic", key): perm for key, perm in _perms(keys.get("topicPerms"))}
    perms |= {Resource("Group", key): perm for key, perm in _perms(keys.get("groupPerms"))}
    topic, group = (_perm(str(keys.get(key) or "DENY")) for key in ("defaultTopicPerm", "defaultGroupPerm"))
    is_admin = str(keys.get("admin") or "false").lower() == "true"
    return PlainAccount(name, secret, is_admin, address, topic, group, perms)


def _perms(given: object) -> list[tuple[str, frozenset[str]]]:
    found: list[tuple[str, frozenset[str]]] = []
    for text in _texts(given):
        name, sign, perm = text.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"{text!r} is not a permission; write name=PUB|SUB")
        found.append((name.strip(), _perm(perm)))
    return found


def _perm(text: str) -> frozenset[str]:
    return frozenset(_PERMS.get(text.strip(), ()))


def _texts(given: object) -> list[str]:
    if given is None or given == "":
        return []
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is not a list; write each value on a line of its own, after a dash")
    return [str(one) for one in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


class PlainGate:
    """The access control of 4.9 over rules that may change."""

    code: int = ResponseCode.SYSTEM_ERROR

    def __init__(self, rules: Callable[[], PlainRules], edition: Callable[[], int], cluster: str) -> None:
        self._rules, self._edition, self._cluster = rules, edition, cluster

    @property
    def edition(self) -> int:
        return self._edition()

    def refusal(self, request: Command, source: str) -> str | None:
        self._edition()  # looks whether the files have changed
        rules, fields = self._rules(), request.fields or {}
        between = request.code in BETWEEN_BROKERS
        if not between and self.is_trusted(source):
            return None
        name = fields.get(ACCESS_KEY)
        if name is None:
            return f"{EXCEPTION}No accessKey is configured"
        account = rules.accounts.get(name)
        if account is None:
            return f"{EXCEPTION}No acl config for {name}"
        if not between and matches(source, account.white_address):
            return None
        if not is_signed(fields, request.body, account.secret.encode(), without_flag=True):
            return f"{EXCEPTION}Check signature failed for accessKey={name}"
        if request.code in ADMIN_CODES or between:
            return None if account.is_admin else _needs_admin(account, request.code)
        return self._permission_problem(account, request)

    def signer(self, request: Command) -> str | None:
        fields = request.fields or {}
        account = self._rules().accounts.get(fields.get(ACCESS_KEY, ""))
        if account is None or not is_signed(fields, request.body, account.secret.encode(), without_flag=True):
            return None
        return account.name

    def topic_refusal(self, request: Command, topic: str, actions: tuple[str, ...], source: str) -> str | None:
        name = (request.fields or {}).get(ACCESS_KEY, "")
        account = self._rules().accounts.get(name)
        if self.is_trusted(source) or (account is not None and matches(source, account.white_address)):
            return None
        if account is None:
            return f"{EXCEPTION}No acl config for {name}"
        return _first_problem(account, [(topic_or_group(topic), actions)], request.code)

    def _permission_problem(self, account: PlainAccount, request: Command) -> str | None:
        try:
            needs = needs_of(request.code, request.fields or {}, request.body, self._cluster)
        except WireError as error:
            return f"{EXCEPTION}{error}"
        return _first_problem(account, needs, request.code)

    def secret_of(self, name: str) -> bytes | None:
        account = self._rules().accounts.get(name)
        return None if account is None else account.secret.encode()

    def may_send(self, name: str, topic: str, source: str) -> bool:
        account = self._rules().accounts.get(name)
        if account is None or topic.startswith(RETRY_PREFIX):
            return False
        return may(account, Resource("Topic", topic), {"Pub"})

    def is_trusted(self, source: str) -> bool:
        return any(matches(source, pattern) for pattern in self._rules().white_addresses)


def _first_problem(account: PlainAccount, needs: list[Need], code: int) -> str | None:
    for resource, actions in needs:
        wanted = {action for action in actions if action in ("Pub", "Sub")}
        if wanted and not may(account, resource, wanted):
            return f"{EXCEPTION}No default permission for {resource.type.lower()}:{resource.name}"
        if not wanted and actions != GET and not account.is_admin:
            return _needs_admin(account, code)
    return None


def _needs_admin(account: PlainAccount, code: int) -> str:
    return f"{EXCEPTION}Need admin permission for request code={code}, but accessKey={account.name} is not"


def may(account: PlainAccount, resource: Resource, wanted: set[str]) -> bool:
    """Whether an account may do one of the wanted actions with a topic or a group."""
    if resource == Resource("Topic", TRACE_TOPIC) and "Pub" in wanted:
        return True
    if account.is_admin and not account.perms:
        return True
    default = account.default_group if resource.type == "Group" else account.default_topic
    return bool(wanted & account.perms.get(resource, default))


def matches(source: str, pattern: str) -> bool:
    """Whether an address fits a pattern: *, 10.1.*.*, 10.1.2.3-9, 10.1.2.{3,4}, or several with commas between them."""
    if not pattern:
        return False
    if pattern in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return True
    if "{" in pattern:
        head, _, last = pattern.partition("{")
        return source.startswith(head) and source[len(head) :] in last.rstrip("}").replace(" ", "").split(",")
    if "," in pattern:
        return any(matches(source, one.strip()) for one in pattern.split(","))
    if "*" in pattern or "-" in pattern:
        ours, parts = source.split("."), pattern.split(".")
        return len(ours) == len(parts) == 4 and all(_fits(one, part) for one, part in zip(ours, parts, strict=True))
    try:
        return ipaddress.ip_address(source) == ipaddress.ip_address(pattern)
    except ValueError:
        return False


def _fits(number: str, part: str) -> bool:
    low, dash, high = part.partition("-")
    if dash and low.isdigit() and high.isdigit() and number.isdigit():
        return int(low) <= int(number) <= int(high)
    return part in ("*", number)


def _check_address(pattern: str) -> None:
    """Refuse what can match nothing, such as a name."""
    for one in pattern.split("{")[0].split(","):
        plain = one.strip().rstrip(".:")
        if plain and not all(
            part.replace("-", "").replace("*", "0").isalnum() for part in plain.replace(":", ".").split(".")
        ):
            raise ValueError(f"{pattern!r} is not an address or a pattern of addresses")
    if pattern and not any(letter in pattern for letter in "*-{,"):
        ipaddress.ip_address(pattern)  # its errors are ValueErrors
