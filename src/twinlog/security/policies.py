"""Policies as RocketMQ 5 has them: who may do what with a topic, a group or the cluster, and from where.

    Topic:orders     this topic               Topic:*    every topic
    Topic:ord*       topics that begin so     *          everything

A request asks for one or several actions on a resource. An entry covers it when the resource fits, one of the actions
is in the entry, and the peer's address is in one of its networks. The most exact entry decides; of equally exact ones
a denial. (Java compares the last two the other way round, which matters only if one resource stands twice in a policy.)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache

import msgspec

RESOURCE_TYPES = {name.lower(): name for name in ("Unknown", "Any", "Cluster", "Namespace", "Topic", "Group")}
ACTIONS = {name.lower(): name for name in ("Unknown", "All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get")}
ACTIONS["list"] = "List"
DECISIONS = {"allow": "Allow", "deny": "Deny"}
POLICY_TYPES = {"custom": "Custom", "default": "Default"}
CUSTOM = "Custom"
DEFAULT = "Default"


class Pattern(IntEnum):
    """How a resource is named, the most exact one first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Resource(msgspec.Struct, frozen=True):
    """A topic, a group, the cluster, or all that fit a pattern. `name` is empty for `Pattern.ANY`."""

    type: str
    name: str
    pattern: Pattern = Pattern.LITERAL

    def __str__(self) -> str:
        if self.type == "Any":
            return "*"
        ending = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type}:{self.name}{ending}"

    def covers(self, other: Resource) -> bool:
        """Whether an entry for this resource counts for `other`, which is literal."""
        if self.type == "Any":
            return True
        if self.type != other.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return other.name.startswith(self.name)


def parse_resource(text: str | None) -> Resource | None:
    """The resource that a text like Topic:ord* means; None when it is none."""
    if text is None or not text.strip():
        return None
    if text == "*":
        return Resource("Any", "", Pattern.ANY)
    kind, _, name = text.partition(":")
    kind = RESOURCE_TYPES.get(kind.lower(), "")
    if not kind:
        return None
    if name == "*":
        return Resource(kind, "", Pattern.ANY)
    if name.endswith("*"):
        return Resource(kind, name.partition("*")[0], Pattern.PREFIXED)
    return Resource(kind, name)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of a policy, as requests and files spell it."""

    resource: str
    actions: tuple[str, ...]
    decision: str
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIps")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of one type. Those of type Default count only where no rule of type Custom fits."""

    type: str = msgspec.field(name="policyType")
    entries: tuple[Entry, ...] = ()


def find_entry(policies: Iterable[Policy], wanted: Resource, actions: Sequence[str], source: str) -> Entry | None:
    """The entry that decides; None when no entry fits."""
    by_type = {policy.type: policy.entries for policy in policies}
    for name in (CUSTOM, DEFAULT):
        fitting = [entry for entry in by_type.get(name, ()) if _fits(entry, wanted, actions, source)]
        if fitting:
            return min(fitting, key=_rank)
    return None


def merged(old: Sequence[Policy], new: Iterable[Policy]) -> tuple[Policy, ...]:
    """`old` after `new` was set: an entry for a resource replaces the one for the same resource."""
    policies = {policy.type: policy for policy in old}
    for policy in new:
        before = policies.get(policy.type)
        if before is None:
            policies[policy.type] = policy
            continue
        entries = {parse_resource(entry.resource): entry for entry in before.entries}
        entries.update({parse_resource(entry.resource): entry for entry in policy.entries})
        policies[policy.type] = Policy(policy.type, tuple(entries.values()))
    return tuple(policies.values())


def without(old: Iterable[Policy], policy_type: str, resource: Resource) -> tuple[Policy, ...]:
    """`old` without the entry for a resource; a policy without entries goes."""
    kept: list[Policy] = []
    for policy in old:
        entries = policy.entries
        if policy.type == policy_type:
            entries = tuple(entry for entry in entries if parse_resource(entry.resource) != resource)
        if entries:
            kept.append(Policy(policy.type, entries))
    return tuple(kept)


def is_network(text: str) -> bool:
    """Whether a source address of an entry can be used: an address, or a network like 10.0.0.0/8."""
    return _network(text) is not None


def _fits(entry: Entry, wanted: Resource, actions: Sequence[str], source: str) -> bool:
    resource = parse_resource(entry.resource)
    if resource is None or not resource.covers(wanted):
        return False
    if "All" not in entry.actions and not any(action in entry.actions for action in actions):
        return False
    return not entry.source_ips or any(_is_within(source, network) for network in entry.source_ips)


def _rank(entry: Entry) -> tuple[bool, int, int, bool]:
    """Lower for the entry that decides."""
    resource = parse_resource(entry.resource)
    assert resource is not None
    return resource.type == "Any", resource.pattern, -len(resource.name), entry.decision != "Deny"


def _is_within(source: str, text: str) -> bool:
    network = _network(text)
    if network is None:
        return False
    try:
        return ipaddress.ip_address(source) in network
    except ValueError:
        return False


@lru_cache(1024)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
