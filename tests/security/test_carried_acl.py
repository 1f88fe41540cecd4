"""The accounts of a 4.9 master become a file that means the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.security.carried_acl import carried_text
from twinlog.security.errors import AccountsBroken
from twinlog.security.plain_acl import read_rules
from twinlog.security.plain_files import parse_yaml

# What Java 4.9.7 answered to request 54, with `admin` and lists as they were in its plain_acl.yml.
JAVA = {
    "globalWhiteAddrs": ["10.10.103.*"],
    "plainAccessConfigs": [
        {"accessKey": "plainadmin", "admin": True, "secretKey": "12345678"},
        {
            "accessKey": "plainuser",
            "admin": False,
            "defaultGroupPerm": "DENY",
            "defaultTopicPerm": "DENY",
            "groupPerms": ["G1=SUB"],
            "secretKey": "plain'secret",
            "topicPerms": ["T1=PUB|SUB", "PreDenied=DENY"],
            "whiteRemoteAddress": "192.0.2.1",
        },
    ],
}


def rules_of(answer: object):
    return read_rules(parse_yaml(carried_text(json.dumps(answer).encode())), "test")


def test_accounts_permissions_and_white_addresses_are_carried():
    rules = rules_of(JAVA)
    assert rules.white_addresses == ("10.10.103.*",)
    admin, user = rules.accounts["plainadmin"], rules.accounts["plainuser"]
    assert (admin.is_admin, admin.secret) == (True, "12345678")
    assert (user.is_admin, user.secret, user.white_address) == (False, "plain'secret", "192.0.2.1")
    perms = {f"{resource}": sorted(actions) for resource, actions in user.perms.items()}
    assert perms == {"Topic:T1": ["Pub", "Sub"], "Topic:PreDenied": [], "Group:G1": ["Sub"]}


def test_a_master_without_accounts_leaves_a_file_without_any():
    assert rules_of({}).accounts == {} and rules_of({"plainAccessConfigs": None}).white_addresses == ()


_NAME = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=7, max_size=20)


@given(_NAME, _NAME, st.booleans(), st.lists(st.tuples(st.text("abc%-_", min_size=1), st.sampled_from(["PUB", "SUB"]))))
def test_what_is_written_means_what_the_master_said_or_is_refused(name, secret, admin, perms):
    account = {"accessKey": name, "secretKey": secret, "admin": admin, "topicPerms": [f"{t}={p}" for t, p in perms]}
    try:
        rules = rules_of({"plainAccessConfigs": [account]})
    except AccountsBroken as error:
        assert secret not in str(error) or secret in name
        assert any(mark in name + secret for mark in "'\"\\"), "only quotes and backslashes may be refused"
        return
    (found,) = rules.accounts.values()
    assert (found.name, found.secret, found.is_admin) == (name, secret, admin)
    assert {resource.name for resource in found.perms} == {topic for topic, _ in perms}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"plainAccessConfigs":[{"accessKey":1}]}', b"[" * 100_000])
def test_an_answer_that_cannot_be_read_changes_nothing(body):
    with pytest.raises(AccountsBroken):
        carried_text(body)


@pytest.mark.parametrize(
    ("key", "value"),
    [("secretKey", "12345678\nadmin: true"), ("secretKey", "a'b\"c\\defg"), ("accessKey", "short"), ("secretKey", "")],
)
def test_a_value_that_cannot_be_in_the_file_is_refused_and_the_secret_is_not_shown(key, value):
    account = {"accessKey": "plainuser", "secretKey": "12345678", key: value}
    with pytest.raises(AccountsBroken) as caught:
        rules_of({"plainAccessConfigs": [account]})
    assert key != "secretKey" or not value or value not in str(caught.value)
