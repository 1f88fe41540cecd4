"""accounts.json is private and sealed; one that cannot be read stops the start."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from twinlog.security.account_file import AccountFile, first_accounts, open_account_file
from twinlog.security.errors import AccountsBroken
from twinlog.security.policies import Entry, Policy
from twinlog.security.sealing import KEY_VARIABLE, Seal, seal_between
from twinlog.security.users import SUPER, Account
from twinlog.settings.access import AccessSettings

ROOT = Account("root", "very secret", SUPER)
ALICE = Account(
    "alice", "hidden", policies=(Policy("Custom", (Entry("Topic:T*", ("Pub",), "Allow", ("10.0.0.0/8",)),)),)
)


def opened(directory: Path) -> AccountFile:
    return open_account_file(AccessSettings(), directory)


def save(file: AccountFile, *accounts: Account) -> None:
    file.save(file.encoded(accounts))


def test_accounts_come_back_and_a_copy_of_the_file_alone_gives_no_secret(tmp_path: Path):
    file = opened(tmp_path)
    assert file.load() == {}
    save(file, ROOT, ALICE)
    assert opened(tmp_path).load() == {"root": ROOT, "alice": ALICE}
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = (tmp_path / "accounts.json").read_text()
    assert "alice" in text and "Topic:T*" in text
    assert "very secret" not in text and "hidden" not in text
    (tmp_path / "accounts.key").write_text("00" * 32)
    with pytest.raises(AccountsBroken, match="another key"):
        opened(tmp_path).load()


def test_the_key_may_come_from_the_environment_or_another_directory(tmp_path: Path, monkeypatch):
    elsewhere = tmp_path / "keys" / "twinlog"
    settings = AccessSettings(accounts_dir=str(tmp_path / "accounts"), accounts_key_file=str(elsewhere))
    save(open_account_file(settings, tmp_path), ROOT)
    assert not list((tmp_path / "accounts").glob("*.key"))
    assert open_account_file(settings, tmp_path).load() == {"root": ROOT}
    monkeypatch.setenv(KEY_VARIABLE, "a key of the environment")
    file = opened(tmp_path / "other")
    save(file, ALICE)
    assert opened(tmp_path / "other").load() == {"alice": ALICE}
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["accounts.json"]
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(AccountsBroken, match="longer key"):
        opened(tmp_path / "other")


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _swapped(text: str) -> str:
    """Alice gets root's sealed secret."""
    document = json.loads(text)
    alice, root = document["accounts"]
    alice["secret"] = root["secret"]
    return json.dumps(document)


def _twice(text: str) -> str:
    document = json.loads(text)
    document["accounts"].append(document["accounts"][0])
    return json.dumps(document)


@pytest.mark.parametrize(
    "broken",
    [
        _cut,
        _swapped,
        _twice,
        lambda text: "",
        lambda text: "{}",
        lambda text: text.replace('"Super"', '"God"'),
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace('"policies"', '"polices"'),
    ],
)
def test_a_broken_file_stops_the_start_even_if_its_backup_is_whole(tmp_path: Path, broken):
    """Seen to fail: with FileWithBackup, the backup was loaded, and with it an account that had been deleted."""
    file = opened(tmp_path)
    save(file, ROOT, ALICE)
    save(file, ROOT, ALICE)
    path = tmp_path / "accounts.json"
    path.write_text(broken(path.read_text()))
    with pytest.raises(AccountsBroken) as raised:
        opened(tmp_path).load()
    assert "accounts.json.bak" in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_a_lost_file_or_key_stops_the_start(tmp_path: Path):
    file = opened(tmp_path)
    save(file, ROOT)
    save(file, ROOT)
    (tmp_path / "accounts.json").rename(tmp_path / "moved")
    with pytest.raises(AccountsBroken, match="missing"):
        opened(tmp_path).load()
    (tmp_path / "moved").rename(tmp_path / "accounts.json")
    (tmp_path / "accounts.key").unlink()
    with pytest.raises(AccountsBroken, match="restore the key"):
        opened(tmp_path)
    (tmp_path / "accounts.key").write_text("not hexadecimal")
    with pytest.raises(AccountsBroken, match="hexadecimal"):
        opened(tmp_path)


def test_a_sealed_secret_is_never_the_same_twice_and_belongs_to_one_account():
    seal = Seal(b"key" * 16)
    one, two = seal.seal("alice", "secret"), seal.seal("alice", "secret")
    assert one != two
    assert seal.open("alice", one) == seal.open("alice", two) == "secret"
    assert seal.open("x", seal.seal("x", "long " * 50)) == "long " * 50
    for owner, text in (("bob", one), ("alice", one[:-4]), ("alice", "1."), ("alice", ""), ("alice", "é")):
        with pytest.raises(ValueError):
            seal.open(owner, text)
    with pytest.raises(ValueError):
        seal_between("other").open("alice", seal_between("secret").seal("alice", "x"))


def test_the_settings_name_the_first_accounts():
    settings = AccessSettings(init_user='{"username":"root","password":"very secret"}')
    inner = '{"accessKey":"replica","secretKey":"s"}'
    assert first_accounts(settings, inner) == [ROOT, Account("replica", "s", SUPER)]
    assert first_accounts(AccessSettings()) == []
