"""Settings are shown, and changed while the name server runs."""

import pytest

from .offline import OfflineServer


def test_settings_are_listed_sorted(server):
    lines = server.ask(319).body.decode().splitlines()
    keys = [line.partition("=")[0] for line in lines]
    assert keys == sorted(keys)
    assert "scanNotActiveBrokerInterval=5000" in lines and "serverChannelMaxIdleTimeSeconds=120" in lines


def test_an_update_takes_effect_and_goes_into_the_file(tmp_path):
    server = OfflineServer(tmp_path, "# mine\norderMessageEnable=false\n")
    assert server.ask(318, body=b"orderMessageEnable=true\nnoSuchKey=1").code == 0
    assert server.ctx.conf.nameserver.order_topics_in_routes
    assert server.path.read_text() == "# mine\norderMessageEnable=true\n"


def test_the_rest_of_a_file_in_latin_1_survives_an_update(tmp_path):
    server = OfflineServer(tmp_path)
    server.path.write_bytes(b"# f\xfcr uns\n")
    assert server.ask(318, body=b"orderMessageEnable=true").code == 0
    assert server.path.read_text() == "# f\u00fcr uns\norderMessageEnable=true\n"


def test_what_cannot_be_written_is_refused_in_one_line(server, caplog, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("twinlog.nameserver.config_handlers.rewrite_file", full)
    monkeypatch.setattr("twinlog.nameserver.kv_config.replace_file", full)
    for code, fields in ((318, None), (100, {"namespace": "n", "key": "k", "value": "v"})):
        answer = server.ask(code, fields, body=b"orderMessageEnable=true")
        assert answer.code == 1 and answer.remark.endswith("No space left on device; nothing was changed")
    assert not server.ctx.conf.nameserver.order_topics_in_routes
    assert caplog.text.count("No space left") == 2 and "Traceback" not in caplog.text


def test_keys_that_nothing_reads_are_named_in_the_log(server, caplog):
    server.ask(318, body=b"serverWorkerThreads=3")
    assert "serverWorkerThreads" in caplog.text


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
def test_black_listed_settings_are_refused(server, key):
    answer = server.ask(318, body=f"orderMessageEnable=true\n{key}=/etc/x".encode())
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    assert not server.ctx.conf.nameserver.order_topics_in_routes


def test_a_setting_that_needs_a_restart_is_refused(server):
    assert server.ask(318, body=b"listenPort=1").code == 16


def test_a_bad_value_is_refused(server):
    answer = server.ask(318, body=b"orderMessageEnable=maybe")
    assert answer.code == 1 and "orderMessageEnable=maybe is neither true nor false" in answer.remark
    assert server.ask(318, body=b"\xff").code == 1
    assert server.ask(318).code == 0
