"""What requests about accounts change and answer; the remarks are Java's."""

from __future__ import annotations

import json

import pytest

from twinlog.security.account_requests import answer
from twinlog.security.errors import AccountRefused
from twinlog.security.users import Account, Accounts

ROOT = Account("root", "secret", "Super")
BOB = Account("bob", "bob secret")


class Book:
    def __init__(self, *accounts: Account) -> None:
        self.rows: dict[str, Account] = {one.username: one for one in accounts or (ROOT,)}

    def ask(self, code: int, fields: dict[str, str] | None = None, body: object = None, caller: Account | None = ROOT):
        rows: Accounts = self.rows
        given = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        outcome = answer(code, fields or {}, given, rows, caller)
        if outcome.put is not None:
            self.rows[outcome.put.username] = outcome.put
        if outcome.removed is not None:
            del self.rows[outcome.removed]
        return None if outcome.body is None else json.loads(outcome.body)

    def refused(self, code: int, fields: dict[str, str] | None = None, body: object = None, caller=ROOT):
        before = dict(self.rows)
        with pytest.raises(AccountRefused) as raised:
            self.ask(code, fields, body, caller)
        assert self.rows == before
        return raised.value.code, raised.value.remark


def acl(resource: str = "Topic:T1", actions=("Pub",), decision="Allow", sources=None, policy_type="Custom"):
    entry = {"resource": resource, "actions": list(actions), "decision": decision, "sourceIps": sources}
    return {"subject": "User:alice", "policies": [{"policyType": policy_type, "entries": [entry]}]}


ALICE = {"username": "alice"}


def test_a_user_is_created_changed_shown_without_its_password_and_deleted():
    book = Book()
    assert book.ask(3004, ALICE) is None
    book.ask(3001, ALICE, {"password": "12345678", "userType": "Normal"})
    assert book.rows["alice"] == Account("alice", "12345678")
    assert book.ask(3004, ALICE) == {"username": "alice", "userType": "Normal", "userStatus": "enable"}
    book.ask(3002, ALICE, {"userStatus": "disable"})
    book.ask(3002, ALICE, {"password": "new"})
    assert book.rows["alice"] == Account("alice", "new", "Normal", "disable")
    assert [one["username"] for one in book.ask(3005)] == ["alice", "root"]
    assert book.ask(3005, {"filter": "ali"}) == [{"username": "alice", "userType": "Normal", "userStatus": "disable"}]
    assert book.ask(3005, {"filter": "nobody"}) is None
    book.ask(3003, ALICE)
    assert list(book.rows) == ["root"]
    book.ask(3003, ALICE)  # Java: deleting nobody succeeds


def test_no_answer_holds_a_password():
    """CVE-2024-23321 was about answers with secrets in them. Seen to fail: with `password=account.secret`."""
    book = Book(ROOT, Account("alice", "unheard-of"))
    book.ask(3006, {"subject": "User:alice"}, acl())
    for code, fields in ((3004, ALICE), (3005, {}), (3009, {"subject": "User:alice"}), (3010, {})):
        assert "unheard-of" not in json.dumps(book.ask(code, fields))
        assert "password" not in json.dumps(book.ask(code, fields))


def test_refused_changes_of_users():
    book = Book(ROOT, BOB)
    assert book.refused(3001, {}, {"password": "x"}) == (29, "The username is blank")
    assert book.refused(3001, ALICE, {}) == (16, "password can not be blank")
    assert book.refused(3001, {"username": "bob"}, {"password": "x"}) == (16, "The user is existed")
    assert book.refused(3002, ALICE, {"password": "x"}) == (16, "The user is not exist")
    assert book.refused(3004, {}) == (29, "The username is blank")
    super_only = "The super user can only be {} by super user"
    king = {"password": "x", "userType": "Super"}
    assert book.refused(3001, ALICE, king, BOB) == (1, super_only.format("create"))
    assert book.refused(3002, {"username": "bob"}, king, BOB) == (1, super_only.format("update"))
    assert book.refused(3002, {"username": "root"}, {"password": "x"}, BOB) == (16, super_only.format("update"))
    assert book.refused(3003, {"username": "root"}, None, BOB) == (16, super_only.format("update"))


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"password":1}', b" " * 300_000])
def test_a_body_that_cannot_be_read_changes_nothing(body):
    for code in (3001, 3002, 3006, 3007):
        assert Book(ROOT, Account("alice", "x")).refused(code, ALICE, body)[0] == 1


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "x" * 256])
def test_names_and_passwords_cannot_break_a_line(name):
    assert Book().refused(3001, {"username": name}, {"password": "x"})[0] == 16
    assert Book().refused(3001, ALICE, {"password": name})[0] == 16


def test_the_last_super_user_can_neither_go_nor_be_disabled():
    book = Book(ROOT, BOB)
    for code, body in ((3003, None), (3002, {"userStatus": "disable"}), (3002, {"userType": "Normal"})):
        assert "last super user" in book.refused(code, {"username": "root"}, body)[1]
    book.ask(3001, ALICE, {"password": "x", "userType": "Super"})
    book.ask(3003, {"username": "root"})


def test_policies_are_set_shown_filtered_and_removed():
    book = Book(ROOT, Account("alice", "x"))
    subject = {"subject": "User:alice"}
    assert book.ask(3009, subject) is None
    book.ask(3006, subject, acl("topic:T1", ("pub", "SUB"), "allow"))
    book.ask(3007, subject, acl("Group:G*", ("Sub",), "Deny", ["10.0.0.0/8"]))
    entries = book.ask(3009, subject)["policies"][0]["entries"]
    assert entries == [
        {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:T1"},
        {"actions": ["Sub"], "decision": "Deny", "resource": "Group:G*", "sourceIps": ["10.0.0.0/8"]},
    ]
    assert [one["subject"] for one in book.ask(3010)] == ["User:alice"]
    assert book.ask(3010, {"subjectFilter": "bob"}) is None
    filtered = book.ask(3010, {"resourceFilter": "Group"})
    assert [entry["resource"] for entry in filtered[0]["policies"][0]["entries"]] == ["Group:G*"]
    book.ask(3008, {**subject, "resource": "Topic:T1"})
    assert [entry["resource"] for entry in book.ask(3009, subject)["policies"][0]["entries"]] == ["Group:G*"]
    book.ask(3008, subject)
    assert book.ask(3009, subject) is None
    assert book.refused(3008, subject) == (16, "The acl is not exist.")


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (acl("Planet:Mars"), "The resource is null."),
        (acl(actions=()), "The actions is empty."),
        (acl(actions=("Fly",)), "The actions is empty."),
        (acl(actions=("Any",)), "The actions can not be Any."),
        (acl(sources=["localhost"]), "The source ip is invalid."),
        (acl(sources=[" "]), "The source ip is empty."),
        (acl(decision="Maybe"), "The decision is null or illegal."),
        ({"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": []}]}, "The policies is empty."),
    ],
)
def test_refused_policies(body, remark):
    book = Book(ROOT, Account("alice", "x"))
    assert book.refused(3006, {"subject": "User:alice"}, body) == (16, remark)


def test_policies_belong_to_users_that_exist():
    book = Book()
    assert book.refused(3006, {}, acl()) == (16, "The subject of User:alice is not exist.")
    assert book.refused(3009, {"subject": "User:alice"}) == (16, "The subject is not exist.")
    assert book.refused(3008, {"subject": "User:alice"}) == (16, "The subject is not exist.")
