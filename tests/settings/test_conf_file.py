import os
import stat

import pytest

from twinlog.settings import conf_file
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.conf_file import exposed_secret, rewrite_file
from twinlog.settings.errors import SettingsError

TEXT = "# ours\nbrokerName = a\nmaxMessageSize=2048 \n"


def test_the_operators_file_keeps_its_comments(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(TEXT)
    rewrite_file(path, {"maxMessageSize": "1024", "traceOn": "false"})
    assert path.read_text() == "# ours\nbrokerName = a\nmaxMessageSize=1024\ntraceOn=false\n"
    assert load_broker_conf(path).store.message_bytes_max == 1024
    assert (tmp_path / "broker.conf.bak").read_text() == TEXT
    assert sorted(os.listdir(tmp_path)) == ["broker.conf", "broker.conf.bak"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_with_passwords_stays_as_closed_as_it_was(tmp_path, mode):
    path = tmp_path / "broker.conf"
    path.write_text(TEXT)
    path.chmod(mode)
    rewrite_file(path, {"traceOn": "false"})
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_goes_on_pointing_to_the_file(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "broker.conf").write_text(TEXT)
    (tmp_path / "broker.conf").symlink_to("real/broker.conf")
    rewrite_file(tmp_path / "broker.conf", {"traceOn": "false"})
    assert (tmp_path / "broker.conf").is_symlink()
    assert "traceOn=false" in (tmp_path / "real" / "broker.conf").read_text()


def test_a_file_that_is_gone_is_made_only_where_that_is_meant(tmp_path):
    path = tmp_path / "new" / "namesrv.properties"
    with pytest.raises(SettingsError, match=r"namesrv.properties: No such file"):
        rewrite_file(path, {"a": "b"})
    assert not path.parent.exists()
    rewrite_file(path, {"a": "b"}, missing_ok=True)
    assert path.read_text() == "a=b\n"


SECRET = 'brokerName=a\ninitAuthenticationUser={"username":"root","password":"x"}\n'


@pytest.mark.parametrize(
    ("text", "mode", "folder_mode", "found"),
    [
        (SECRET, 0o644, 0o755, "initAuthenticationUser"),
        ("haSharedSecret=0123456789abcdef\n", 0o604, 0o755, "haSharedSecret"),
        (SECRET, 0o640, 0o755, None),
        (SECRET, 0o600, 0o755, None),
        (SECRET, 0o644, 0o700, None),
        ("brokerName=a\n", 0o644, 0o755, None),
    ],
)
def test_a_secret_that_every_user_can_read_is_found(tmp_path, monkeypatch, text, mode, folder_mode, found):
    folder = tmp_path / "conf"
    folder.mkdir()
    path = folder / "broker.conf"
    path.write_text(text)
    path.chmod(mode)
    folder.chmod(folder_mode)
    # pytest's own folders are private.
    monkeypatch.setattr(conf_file.Path, "parents", property(lambda self: [folder]))
    assert exposed_secret(path) == found
