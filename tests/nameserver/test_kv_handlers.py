"""KV configs are shown and changed."""

import pytest

from twinlog.wire.codes import RequestCode

from .offline import OfflineServer


def test_kv_configs(server):
    item = {"namespace": "N", "key": "k", "value": "v"}
    assert server.ask(100, item).code == 0
    assert server.ask(101, item).fields == {"value": "v"}
    assert server.json(219, {"namespace": "N"}) == {"table": {"k": "v"}}
    assert server.ask(102, item).code == 0
    missing = server.ask(101, item)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
    assert server.json(219, {"namespace": "N"}) == {"table": {}}
    unknown = server.ask(219, {"namespace": "M"})
    assert (unknown.code, unknown.remark) == (22, "No config item, Namespace: M")


@pytest.mark.parametrize("missing", ["namespace", "key"])
def test_a_kv_config_needs_namespace_and_key(server, missing):
    fields = {key: "x" for key in ("namespace", "key", "value") if key != missing}
    answer = server.ask(100, fields)
    assert (answer.code, answer.remark) == (1, "namespace or key is null")


def test_a_kv_config_that_cannot_be_written_is_not_kept(server, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    answer = server.ask(100, {"namespace": "N", "key": "k", "value": "v"})
    assert answer.code == 1 and "No space left" in answer.remark
    assert server.ask(101, {"namespace": "N", "key": "k"}).code == 22


@pytest.mark.parametrize(
    ("conf", "value", "remark"),
    [
        ("", "v" * 1_000_000, "a KV config of 1000002 characters: maxKvLength is 65536"),
        ("maxKvTableLength=100", "v" * 90, "the KV configs would have 124 characters: maxKvTableLength is 100"),
    ],
)
def test_a_value_that_is_too_long_is_refused_with_the_key(tmp_path, conf, value, remark):
    server = OfflineServer(tmp_path, conf)
    answer = server.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": value})
    assert (answer.code, answer.remark) == (1, f"{remark}; keep less there, or raise it")
    assert sum(server.ctx.limits.refused.values()) == 1
    assert server.ctx.kv.namespace("N") is None
