"""Users and policies of a protected broker or name server (`-b` takes either). No answer has a password in it."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from twinlog.cli.admin.command import broker_or_cluster, command, masters, need, opt
from twinlog.cli.shared.report import Report, table, text_report
from twinlog.client import Admin, BadArgument
from twinlog.security.users import DISABLED, ENABLED, NORMAL, SUPER, AclInfo, EntryInfo, PolicyInfo, UserInfo
from twinlog.wire.codes import RequestCode as Code

T = TypeVar("T")


def _some_of(allowed: Iterable[str]) -> Callable[[str], str]:
    """Checks words with commas between them: a server overlooks those it does not know, and reports success."""

    def check(text: str) -> str:
        unknown = [word for word in text.split(",") if word.strip().lower() not in {name.lower() for name in allowed}]
        if unknown:
            raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return text

    return check


ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")
PLACE = broker_or_cluster()
USER, SUBJECT = need("u", "username", "name of the user"), need("s", "subject", "whose policies: User:name")
USER_TYPE = opt("t", "userType", "Super or Normal", kind=_some_of((SUPER, NORMAL)))
RULE = (
    SUBJECT,
    need("r", "resources", "Topic:name, Group:name, Topic:prefix*, Cluster:name; several with commas"),
    need("a", "actions", f"{', '.join(ACTIONS)}; several with commas", kind=_some_of(ACTIONS)),
    need("d", "decision", "Allow or Deny", kind=_some_of(("Allow", "Deny"))),
    opt("i", "sourceIp", "addresses and networks it is valid for; several with commas"),
)


@command("createUser", "Create a user", *PLACE, USER, need("p", "password", "its secret key"), USER_TYPE)
async def create_user(admin: Admin, args: Namespace) -> Report:
    return await _send_user(admin, args, Code.AUTH_CREATE_USER, UserInfo(args.password, None, args.userType), "create")


@command(
    "updateUser",
    "Change a user's password, type or status",
    *PLACE,
    USER,
    opt("p", "password", "its new secret key"),
    USER_TYPE,
    opt("s", "userStatus", "enable or disable", kind=_some_of((ENABLED, DISABLED))),
)
async def update_user(admin: Admin, args: Namespace) -> Report:
    info = UserInfo(args.password, args.userStatus, args.userType)
    if info == UserInfo():
        raise BadArgument("nothing to change; give -p PASSWORD, -t TYPE or -s STATUS")
    return await _send_user(admin, args, Code.AUTH_UPDATE_USER, info, "update")


@command("deleteUser", "Delete a user", *PLACE, USER)
async def delete_user(admin: Admin, args: Namespace) -> Report:
    return await _send(admin, args, Code.AUTH_DELETE_USER, {"username": args.username}, None, "delete user")


@command("getUser", "Show a user", *PLACE, USER)
async def get_user(admin: Admin, args: Namespace) -> Report:
    found = await _ask(admin, args, Code.AUTH_GET_USER, {"username": args.username}, UserInfo)
    return _users(found)


@command("listUser", "List users", *PLACE, opt("f", "filter", "part of the name"))
async def list_users(admin: Admin, args: Namespace) -> Report:
    found = await _ask(admin, args, Code.AUTH_LIST_USER, _given(filter=args.filter), list[UserInfo])
    return _users([user for users in found for user in users])


@command("createAcl", "Allow or deny a user something", *PLACE, *RULE)
async def create_acl(admin: Admin, args: Namespace) -> Report:
    return await _send_rule(admin, args, Code.AUTH_CREATE_ACL, "create acl")


@command("updateAcl", "Change what a user is allowed or denied", *PLACE, *RULE)
async def update_acl(admin: Admin, args: Namespace) -> Report:
    return await _send_rule(admin, args, Code.AUTH_UPDATE_ACL, "update acl")


@command("deleteAcl", "Delete a user's policies", *PLACE, SUBJECT, opt("r", "resources", "only those of one resource"))
async def delete_acl(admin: Admin, args: Namespace) -> Report:
    fields = {"subject": args.subject} | _given(resource=args.resources)
    return await _send(admin, args, Code.AUTH_DELETE_ACL, fields, None, "delete acl")


@command("getAcl", "Show a user's policies", *PLACE, SUBJECT)
async def get_acl(admin: Admin, args: Namespace) -> Report:
    return _rules(await _ask(admin, args, Code.AUTH_GET_ACL, {"subject": args.subject}, AclInfo))


@command("listAcl", "List policies", *PLACE, opt("s", "subject", "part of it"), opt("r", "resources", "part of it"))
async def list_acls(admin: Admin, args: Namespace) -> Report:
    fields = _given(subjectFilter=args.subject, resourceFilter=args.resources)
    found = await _ask(admin, args, Code.AUTH_LIST_ACL, fields, list[AclInfo])
    return _rules([acl for acls in found for acl in acls])


async def _send_user(admin: Admin, args: Namespace, code: Code, info: UserInfo, verb: str) -> Report:
    info.username = args.username
    return await _send(admin, args, code, {"username": args.username}, msgspec.json.encode(info), f"{verb} user")


async def _send_rule(admin: Admin, args: Namespace, code: Code, what: str) -> Report:
    actions, sources = _words(args.actions), _words(args.sourceIp)
    entries = [EntryInfo(actions, args.decision, resource, sources) for resource in _words(args.resources) or ()]
    info = AclInfo([PolicyInfo(entries)], args.subject)
    return await _send(admin, args, code, {"subject": args.subject}, msgspec.json.encode(info), what)


async def _send(
    admin: Admin, args: Namespace, code: Code, fields: dict[str, str], body: bytes | None, what: str
) -> Report:
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.ask_broker(address, code, fields, body)
    return text_report(*(f"{what} to {address} success." for address in addresses))


async def _ask(admin: Admin, args: Namespace, code: Code, fields: dict[str, str], kind: type[T]) -> list[T]:
    """What each broker answers; one that has nothing to show answers without a body."""
    bodies = [(await admin.ask_broker(address, code, fields)).body for address in await masters(admin, args)]
    try:
        return [msgspec.json.decode(body, type=kind) for body in bodies if body]
    except msgspec.DecodeError as error:
        raise BadArgument(f"the answer to request {int(code)} is not as expected: {error}") from error


def _users(found: list[UserInfo]) -> Report:
    rows = [(user.username, user.user_type, user.user_status) for user in found]  # Java's have a password too
    return table("UserName, UserType, UserStatus", rows)


def _rules(found: list[AclInfo]) -> Report:
    rows = [
        (acl.subject, policy.policy_type, one.resource, *map(_joined, (one.actions, one.source_ips)), one.decision)
        for acl in found
        for policy in acl.policies or ()
        for one in policy.entries or ()
    ]
    return table("Subject, PolicyType, Resource, Actions, SourceIp, Decision", rows)


def _joined(words: list[str] | None) -> str:
    return ",".join(words or ())


def _words(text: str | None) -> list[str] | None:
    return [word.strip() for word in text.split(",") if word.strip()] if text else None


def _given(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
