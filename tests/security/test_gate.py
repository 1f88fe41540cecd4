"""Requests that may go on, and the remarks for those that may not."""

from __future__ import annotations

import msgspec
import pytest

from twinlog.client.signing import Credentials, sign
from twinlog.security.gate import AccountGate
from twinlog.security.policies import Entry, Policy
from twinlog.security.users import DISABLED, SUPER, Account
from twinlog.settings.access import AccessSettings
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode

HOME = "127.0.0.1"
ROOT = Account("root", "root secret", SUPER)
ALICE = Account(
    "alice",
    "alice secret",
    policies=(Policy("Custom", (Entry("Topic:T1", ("Pub", "Sub"), "Allow"), Entry("Group:G1", ("Sub",), "Allow"))),),
)


class Rules:
    """A gate over accounts that a test changes."""

    def __init__(self, *accounts: Account, **settings: object) -> None:
        self.rows = {one.username: one for one in accounts}
        self.edition = 0
        settings = {"authentication": True, "authorization": True, **settings}
        access = AccessSettings(**settings)  # pyright: ignore[reportArgumentType]
        self.gate = AccountGate(access, "DefaultCluster", lambda: self.rows, lambda: self.edition)

    def put(self, account: Account) -> None:
        self.rows[account.username] = account
        self.edition += 1

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes | None = None, *, by=ALICE, source=HOME):
        command = Command(code, fields=fields, body=body)
        if by is not None:
            sign(command, Credentials(by.username, by.secret))
        return self.gate.refusal(command, source)


def no_permission(resource: str) -> str:
    return f"User:alice has no permission to access {resource} from 127.0.0.1, no matched policies."


SEND = {"a": "PG", "b": "T1", "g": "1700000000000", "i": "KEYS\x01k\x02"}


def test_who_does_not_sign_or_signs_wrongly_is_refused_in_java_s_words():
    rules = Rules(ROOT, ALICE)
    assert rules.ask(310, SEND, b"body", by=None) == "username cannot be null."
    assert rules.ask(310, None, by=None) == "username cannot be null."
    assert rules.ask(310, SEND, b"body", by=Account("nobody", "x")) == "User:nobody is not found."
    assert rules.ask(310, SEND, b"body", by=Account("alice", "wrong")) == "check signature failed."
    assert rules.ask(310, SEND, b"body") is None
    rules.put(msgspec.structs.replace(ALICE, status=DISABLED))
    assert rules.ask(310, SEND, b"body") == "User:alice is disabled."


@pytest.mark.parametrize("given", ["", "A", "=", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "\ud800", "é", None])
def test_a_truncated_missing_or_foreign_signature_is_refused(given):
    rules = Rules(ALICE)
    fields = {**SEND, "AccessKey": "alice"}
    if given is not None:
        fields["Signature"] = given
    assert rules.gate.refusal(Command(310, fields=fields, body=b"body"), HOME) == "check signature failed."


def test_a_signature_does_not_fit_another_request():
    """A recorded signature opens nothing but the very request that it was made for."""
    rules = Rules(ALICE)
    command = Command(310, fields=dict(SEND), body=b"body")
    sign(command, Credentials("alice", "alice secret"))
    assert rules.gate.refusal(command, HOME) is None
    fields = command.fields or {}
    for changed in ({**fields, "b": "T2"}, {**fields, "extra": "x"}, {**fields, "AccessKey": "root"}):
        assert rules.gate.refusal(Command(310, fields=changed, body=b"body"), HOME) is not None
    assert rules.gate.refusal(Command(310, fields=fields, body=b"other"), HOME) == "check signature failed."


def test_a_changed_secret_or_policy_counts_for_the_next_request():
    rules = Rules(ALICE)
    assert rules.ask(310, SEND) is None
    rules.put(msgspec.structs.replace(ALICE, policies=()))
    assert rules.ask(310, SEND) == no_permission("Topic:T1")
    rules.put(msgspec.structs.replace(ALICE, secret="new"))
    assert rules.ask(310, SEND) == "check signature failed."


def test_a_pull_needs_the_topic_and_the_group():
    rules = Rules(ALICE)
    assert rules.ask(11, {"topic": "T1", "consumerGroup": "G1"}) is None
    assert rules.ask(11, {"topic": "T2", "consumerGroup": "G1"}) == no_permission("Topic:T2")
    assert rules.ask(11, {"topic": "T1", "consumerGroup": "G2"}) == no_permission("Group:G2")
    assert rules.ask(11, {"topic": "%RETRY%G1", "consumerGroup": "G1"}) is None
    # Java reads only the group that the request names, so one could read the retries of others.
    assert rules.ask(11, {"topic": "%RETRY%G2", "consumerGroup": "G1"}) == no_permission("Group:G2")


@pytest.mark.parametrize(
    ("code", "fields", "body", "resource"),
    [
        (310, {"b": "T2", "a": "PG"}, b"x", "Topic:T2"),
        (310, {"b": "%RETRY%G2", "a": "G1"}, b"x", "Group:G2"),
        (320, {"b": "T2"}, b"x", "Topic:T2"),
        (10, {"topic": "T2"}, b"x", "Topic:T2"),
        (15, {"topic": "T1", "consumerGroup": "G2"}, None, "Group:G2"),
        (17, {"topic": "T1"}, None, "Topic:T1"),  # Create is not allowed
        (18, {}, b'{"topicConfigList":[{"topicName":"T9"}]}', "Topic:T9"),
        (25, {}, b"fileReservedTime=1", "Cluster:DefaultCluster"),
        (26, {}, None, "Cluster:DefaultCluster"),
        (33, {"offset": "0"}, None, "Cluster:DefaultCluster"),
        (34, {}, b'{"clientID":"c","consumerDataSet":[{"groupName":"G2","subscriptionDataSet":[]}]}', "Group:G2"),
        (
            34,
            {},
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G1","subscriptionDataSet":[{"topic":"T7"}]}]}',
            "Topic:T7",
        ),
        (36, {"group": "G2"}, None, "Group:G2"),
        (41, {}, b'{"consumerGroup":"G2","clientId":"c","mqSet":[]}', "Group:G2"),
        (43, {}, None, "Cluster:DefaultCluster"),
        (105, {"topic": "T2"}, None, "Topic:T2"),
        (200, {}, b'{"groupName":"G1"}', "Group:G1"),
        (208, {"consumerGroup": "G1", "topicList": "T1;T5"}, None, "Topic:T1"),
        (215, {"topic": "T1"}, None, "Topic:T1"),
        (222, {"topic": "T1", "group": "G1"}, None, "Topic:T1"),
        (3001, {"username": "mallory"}, b"{}", "Cluster:DefaultCluster"),
        (3005, {}, None, "Cluster:DefaultCluster"),
        (TwinlogCode.CHANGE_ROLE, {}, None, "Cluster:DefaultCluster"),
        (999_999, {}, None, "Cluster:DefaultCluster"),
    ],
)
def test_what_an_ordinary_account_may_not_do(code, fields, body, resource):
    assert Rules(ALICE).ask(code, fields, body) == no_permission(resource)
    assert Rules(ROOT).ask(code, fields, body, by=ROOT) is None


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, 18, 200, 46])
@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_a_refusal(code, body):
    assert Rules(ALICE).ask(code, {}, body) == "parse authorization context error."


@pytest.mark.parametrize("code", [30901, 30902, 30903, 30904])
def test_what_brokers_ask_each_other_is_for_super_accounts_whatever_else_is_off(code):
    for settings in ({}, {"authorization": False}, {"authentication_white_list": str(code)}):
        rules = Rules(ROOT, ALICE, **settings)
        assert "not a super user" in (rules.ask(code) or "")
        assert rules.ask(code, by=None) is not None
        assert rules.ask(code, by=ROOT) is None


def test_without_authorization_every_account_may_do_everything():
    rules = Rules(ALICE, authorization=False)
    assert rules.ask(25, body=b"x") is None
    assert rules.ask(25, body=b"x", by=None) == "username cannot be null."


def test_white_lists_name_codes_that_need_no_signature_or_no_permission():
    rules = Rules(ROOT, ALICE, authentication_white_list="105, 310", authorization_white_list="105")
    assert rules.ask(105, {"topic": "T9"}, by=None) is None
    # Without a signature nobody is believed to be root.
    assert rules.ask(310, {**SEND, "AccessKey": "root"}, by=None) == (
        "Authorization failed. Please verify your access rights and try again."
    )


def test_a_query_of_an_old_client_is_signed_without_its_flag():
    rules = Rules(ROOT)
    command = Command(12, fields={"topic": "T1", "key": "k"}, version=399)
    sign(command, Credentials("root", "root secret"))
    assert command.fields is not None
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert rules.gate.refusal(command, HOME) is None
    command.version = 479
    assert rules.gate.refusal(command, HOME) == "check signature failed."


def test_the_fast_path_asks_the_same_questions():
    rules = Rules(ROOT, ALICE)
    assert rules.gate.secret_of("alice") == b"alice secret"
    assert rules.gate.secret_of("nobody") is None
    assert rules.gate.may_send("alice", "T1", HOME)
    assert not rules.gate.may_send("alice", "T2", HOME)
    assert rules.gate.may_send("root", "T2", HOME)
    rules.put(msgspec.structs.replace(ALICE, status=DISABLED))
    assert rules.gate.secret_of("alice") is None
    assert not rules.gate.may_send("alice", "T1", HOME)
