"""Settings are shown, and changed while the broker runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tests.broker.offline import ask
from tests.broker.stored import stored_context

from twinlog.broker.admin import config_handlers
from twinlog.settings.broker_conf import load_broker_conf


def test_settings_are_shown_sorted_and_changed_by_the_allow_list_only(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = config_handlers.handlers(ctx)
        answer = ask(handlers, 26)
        lines = answer.body.decode().splitlines()
        assert lines == sorted(lines)
        assert "brokerName=broker-a" in lines
        assert json.loads(answer.fields["version"])["counter"] == 0
        assert ask(handlers, 25, body=b"maxMessageSize=1024\nnonsense=1\n").code == 0
        assert ctx.conf.store.message_bytes_max == 1024
        assert json.loads(ask(handlers, 26).fields["version"])["counter"] == 1
        for forbidden in (b"brokerConfigPath=/x", b"rocketmqHome=/x", b"configBlackList=a"):
            answer = ask(handlers, 25, body=forbidden)
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        assert ask(handlers, 25, body=b"storePathRootDir=/elsewhere").code == 16
        assert ask(handlers, 25, body=b"maxMessageSize=many").code == 1
        assert ask(handlers, 25, body=b"\xff\xfe").code == 1
        assert ctx.conf.store.message_bytes_max == 1024


def test_a_changed_permission_is_a_new_version_of_all_topics(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        told: list[tuple[str, ...]] = []
        ctx.topic_listeners.append(told.append)
        before = ctx.topics.version.counter
        assert ask(config_handlers.handlers(ctx), 25, body=b"brokerPermission=4").code == 0
        assert ctx.topics.version.counter == before + 1
        assert "T" in told[0]


def test_an_update_counts_even_when_the_operators_file_is_gone(tmp_path: Path, caplog):
    with stored_context(tmp_path) as ctx:
        ctx.conf = dataclasses.replace(ctx.conf, path=str(tmp_path / "gone.conf"))
        assert ask(config_handlers.handlers(ctx), 25, body=b"maxMessageSize=1024").code == 0
        assert ctx.conf.store.message_bytes_max == 1024
    assert "gone.conf" in caplog.text and "write them into the file by hand" in caplog.text


@pytest.mark.parametrize("text", ["haMasterAddress=", "haMasterAddress=h:1"])
def test_a_master_address_is_taken_away_for_good_by_an_empty_or_short_one(tmp_path: Path, caplog, text: str):
    file = tmp_path / "broker.conf"
    file.write_text("haMasterAddress=192.0.2.1:10912\n")
    with stored_context(tmp_path, haMasterAddress="192.0.2.1:10912") as ctx:
        ctx.conf = dataclasses.replace(ctx.conf, path=str(file))
        assert ask(config_handlers.handlers(ctx), 25, body=text.encode()).code == 0
        assert ctx.conf.replication.master_address is None
    conf = load_broker_conf(file)
    assert (conf.replication.master_address, conf.warnings) == (None, ())
    assert caplog.text.count("counts as not given") == (text != "haMasterAddress=")
