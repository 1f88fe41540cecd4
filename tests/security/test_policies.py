"""Which entry of a policy decides."""

from __future__ import annotations

import pytest

from twinlog.security.gate import authorize
from twinlog.security.policies import Entry, Pattern, Policy, Resource, merged, parse_resource, without
from twinlog.security.users import Account

HOME = "127.0.0.1"


def account(*entries: Entry, default: tuple[Entry, ...] = ()) -> Account:
    policies = (Policy("Custom", entries), *((Policy("Default", default),) if default else ()))
    return Account("alice", "secret", policies=policies)


def allow(resource: str, *actions: str, sources: tuple[str, ...] = ()) -> Entry:
    return Entry(resource, actions or ("Pub", "Sub"), "Allow", sources)


def deny(resource: str, *actions: str) -> Entry:
    return Entry(resource, actions or ("Pub", "Sub"), "Deny")


def may(owner: Account, resource: str, action: str = "Pub", source: str = HOME) -> bool:
    wanted = parse_resource(resource)
    assert wanted is not None
    return authorize(owner, wanted, (action,), source) is None


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("Topic:T1", Resource("Topic", "T1")),
        ("topic:T1", Resource("Topic", "T1")),
        ("Topic:Pre*", Resource("Topic", "Pre", Pattern.PREFIXED)),
        ("Group:*", Resource("Group", "", Pattern.ANY)),
        ("*", Resource("Any", "", Pattern.ANY)),
        ("Cluster:DefaultCluster", Resource("Cluster", "DefaultCluster")),
        ("Planet:Mars", None),
        ("", None),
        (None, None),
    ],
)
def test_a_resource_is_read_as_mqadmin_writes_it(text, resource):
    assert parse_resource(text) == resource
    if resource is not None:
        assert parse_resource(str(resource)) == resource


def test_topics_are_allowed_by_name_by_prefix_and_all_together():
    assert may(account(allow("Topic:T1")), "Topic:T1")
    assert not may(account(allow("Topic:T1")), "Topic:T12")
    assert may(account(allow("Topic:T*")), "Topic:T12")
    assert may(account(allow("Topic:*")), "Topic:anything")
    assert may(account(allow("*")), "Group:anything")
    assert not may(account(allow("Topic:*")), "Group:anything")


def test_an_action_that_is_not_listed_is_refused_and_all_means_every_one():
    assert not may(account(allow("Topic:T1", "Pub")), "Topic:T1", "Sub")
    assert may(account(allow("Topic:T1", "All")), "Topic:T1", "Delete")


def test_an_address_outside_the_listed_networks_is_refused():
    owner = account(allow("Topic:T1", sources=("10.0.0.0/8", "192.0.2.7", "2001:db8::/32")))
    assert may(owner, "Topic:T1", source="10.1.2.3")
    assert may(owner, "Topic:T1", source="192.0.2.7")
    assert may(owner, "Topic:T1", source="2001:db8::5")
    assert not may(owner, "Topic:T1", source="192.0.2.8")
    assert not may(owner, "Topic:T1", source="not an address")


def test_of_policies_that_contradict_the_most_exact_one_decides_and_then_a_denial():
    assert not may(account(allow("Topic:*"), deny("Topic:T1")), "Topic:T1")
    assert may(account(deny("Topic:*"), allow("Topic:T1")), "Topic:T1")
    assert not may(account(allow("Topic:A*"), deny("Topic:AB*")), "Topic:ABC")
    assert not may(account(deny("Topic:T1"), allow("*")), "Topic:T1")
    assert not may(account(allow("Topic:T1"), deny("Topic:T1")), "Topic:T1")
    assert not may(account(deny("Topic:T1"), allow("Topic:T1")), "Topic:T1")


def test_a_default_policy_counts_where_no_custom_entry_fits():
    owner = account(deny("Topic:T1"), default=(allow("Topic:*"),))
    assert not may(owner, "Topic:T1")
    assert may(owner, "Topic:T2")


def test_the_remarks_are_java_s():
    resource = Resource("Topic", "T1")
    assert authorize(account(), resource, ("Pub",), HOME) == (
        "User:alice has no permission to access Topic:T1 from 127.0.0.1, no matched policies."
    )
    assert authorize(account(deny("Topic:T1")), resource, ("Pub",), HOME) == (
        "User:alice has no permission to access Topic:T1 from 127.0.0.1, the decision is deny."
    )


def test_an_entry_replaces_the_one_for_the_same_resource_and_is_removed_alone():
    first = (Policy("Custom", (allow("Topic:T1", "Pub"), allow("Topic:T2"))),)
    both = merged(first, [Policy("Custom", (allow("Topic:T1", "Sub"), allow("Group:G")))])
    assert [(entry.resource, entry.actions) for entry in both[0].entries] == [
        ("Topic:T1", ("Sub",)),
        ("Topic:T2", ("Pub", "Sub")),
        ("Group:G", ("Pub", "Sub")),
    ]
    left = without(both, "Custom", Resource("Topic", "T2"))
    assert [entry.resource for entry in left[0].entries] == ["Topic:T1", "Group:G"]
    assert without(first, "Default", Resource("Topic", "T2")) == first
    assert without((Policy("Custom", (allow("Topic:T1"),)),), "Custom", Resource("Topic", "T1")) == ()
