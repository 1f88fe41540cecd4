"""`twinlog admin` manages users and policies of a protected broker, with mqadmin's flags."""

import json

import pytest
from tests.interop.twinlog_servers import Twinlog

from twinlog.cli.admin.app import run

PROTECTED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
}
ROOT = ["--access-key", "root", "--secret-key", "rootsecret"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    home = tmp_path_factory.mktemp("protected")
    with Twinlog().broker(home, "127.0.0.1:1", registered=False, **PROTECTED) as broker:
        yield broker


@pytest.fixture
def admin(broker, capsys):
    def call(words: str, *, code: int = 0, account: list[str] = ROOT):
        assert run([*words.split(), "-b", broker.address, "-n", "127.0.0.1:1", "--json", *account]) == code
        printed = capsys.readouterr()
        return printed.err if code else json.loads(printed.out)

    return call


def test_users_and_policies_are_created_changed_shown_and_deleted(admin, broker):
    assert admin("createUser -u ann -p annsecret") == [f"create user to {broker.address} success."]
    assert "The user is existed" in admin("createUser -u ann -p annsecret", code=1)
    ann = {"UserName": "ann", "UserType": "Normal", "UserStatus": "enable"}
    assert admin("getUser -u ann") == [ann] == admin("listUser -f an")
    assert len(admin("listUser")) == 2 and admin("getUser -u nobody") == []
    admin("updateUser -u ann -s disable")
    admin("updateUser -u ann -t super")
    assert admin("getUser -u ann") == [ann | {"UserType": "Super", "UserStatus": "disable"}]
    admin("createAcl -s User:ann -r Topic:T1,Topic:Pre* -a Pub,Sub -d Allow -i 10.0.0.0/8")
    rule = {"Subject": "User:ann", "PolicyType": "Custom", "Resource": "Topic:T1", "SourceIp": "10.0.0.0/8"}
    rule |= {"Actions": "Pub,Sub", "Decision": "Allow"}
    assert sorted(one["Resource"] for one in admin("getAcl -s User:ann")) == ["Topic:Pre*", "Topic:T1"]
    admin("updateAcl -s User:ann -r Topic:T1 -a Pub -d Deny")
    changed = rule | {"Actions": "Pub", "SourceIp": "", "Decision": "Deny"}
    assert admin("listAcl -s ann -r T1") == [changed]
    admin("deleteAcl -s User:ann -r Topic:T1")
    assert [one["Resource"] for one in admin("listAcl")] == ["Topic:Pre*"]
    admin("deleteUser -u ann")
    assert len(admin("listUser")) == 1


def test_a_stranger_manages_nothing(admin):
    assert "username cannot be null" in admin("listUser", code=1, account=[])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("updateUser -u ann -s disabled", "'disabled' is none of enable, disable"),
        ("createUser -u ann -p x -t Sooper", "'Sooper' is none of Super, Normal"),
        ("createAcl -s User:ann -r Topic:T -a Pub,Fly -d Allow", "'Fly' is none of"),
        ("createAcl -s User:ann -r Topic:T -a Pub -d Denied", "'Denied' is none of Allow, Deny"),
    ],
)
def test_a_word_that_the_server_would_overlook_is_refused(words, message, capsys):
    """A server takes an unknown status for none given, and reports success: the user would not be disabled."""
    with pytest.raises(SystemExit):
        run([*words.split(), "-b", "127.0.0.1:1"])
    assert message in capsys.readouterr().err


def test_an_update_without_a_change_is_refused(capsys):
    assert run("updateUser -u ann -b 127.0.0.1:1 -n 127.0.0.1:1".split()) != 0
    assert "nothing to change" in capsys.readouterr().err
