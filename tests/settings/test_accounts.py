"""The account of a broker or a command: from a setting, from the environment, from a tools file."""

import pytest

from twinlog.cli.shared.connecting import find_credentials
from twinlog.client import BadArgument, Credentials
from twinlog.settings.accounts import Account, parse_account, read_tools_file
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError

KEY = "innerClientAuthenticationCredentials"
GOOD = '{"accessKey":"replica","secretKey":"very secret"}'


def test_a_setting_names_the_account_and_requests_do_not_show_it():
    conf = load_broker_conf(text=f"{KEY}={GOOD}")
    assert parse_account(conf.broker.own_account or "") == Account("replica", "very secret")
    assert KEY not in conf.properties()
    assert "secret" not in repr(parse_account(GOOD))


@pytest.mark.parametrize("text", ["replica:secret", "{}", "[]", '{"accessKey":"a","secretKey":""}', '{"accessKey":1}'])
def test_a_wrong_account_is_refused_with_the_form_to_write(text):
    with pytest.raises(SettingsError, match=KEY) as refused:
        load_broker_conf(text=f"{KEY}={text}")
    assert '{"accessKey":"name","secretKey":"secret"}' in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accessKey: rocketmq2\nsecretKey: 12345678\n", Account("rocketmq2", "12345678")),
        ("# mqadmin\nsecretKey: '12 345'  # quoted\naccessKey: \"a\"\nother: 1\n", Account("a", "12 345")),
        ("other: 1\n", None),
        ("", None),
    ],
)
def test_a_tools_file_has_a_key_on_each_line(tmp_path, text, found):
    (tmp_path / "tools.yml").write_text(text)
    assert read_tools_file(tmp_path / "tools.yml") == found


def test_a_tools_file_with_half_an_account_is_refused(tmp_path):
    (tmp_path / "tools.yml").write_text("accessKey: a\n")
    with pytest.raises(SettingsError, match="alone; write both, or none"):
        read_tools_file(tmp_path / "tools.yml")


def test_options_win_over_the_environment_and_that_over_the_tools_file(tmp_path, monkeypatch):
    for name in ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert find_credentials() is None
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: file\nsecretKey: s\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert find_credentials() == Credentials("file", "s")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "environment")
    with pytest.raises(BadArgument, match="go together"):
        find_credentials()
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "s")
    assert find_credentials() == Credentials("environment", "s")
    assert find_credentials("option", "s") == Credentials("option", "s")
