"""Routes and lists of topics."""

import json

import pytest

from twinlog.wire.codes import RequestCode

from . import vectors
from .offline import MASTER, REGISTER, ROUTE, OfflineServer


def test_a_request_without_a_topic_finds_null(server):
    assert "topic: null\nSee " in server.ask(ROUTE).remark


@pytest.mark.parametrize(
    ("version", "fields", "quoted"),
    [(401, {}, True), (400, {}, False), (0, {"acceptStandardJsonOnly": "true"}, True)],
)
def test_keys_are_quoted_for_those_who_need_it(with_master, version, fields, quoted):
    body = with_master.ask(ROUTE, {"topic": "TBW102", **fields}, version=version).body
    assert (b'{"0":"127' in body, b'{0:"127' in body) == (quoted, not quoted)


def test_the_quoted_form_is_ascii(server):
    server.ask(REGISTER, {**MASTER, "brokerName": "中😀"}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}')
    queues = '{"queueDatas":[{"brokerName":"中😀","perm":6}]}'.encode()
    server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, queues)
    body = server.ask(ROUTE, {"topic": "T"}).body
    assert rb'"brokerName":"\u4E2D\uD83D\uDE00"' in body
    assert json.loads(body)["queueDatas"][0]["brokerName"] == "中😀"


def test_a_zone_rewrites_the_body_with_bare_keys(server):
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'
    server.ask(REGISTER, {**MASTER, "__ZONE_NAME": "z1"}, body)
    zone = {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "Z1"}
    assert b'{0:"127' in server.ask(ROUTE, zone).body
    elsewhere = server.json(ROUTE, {**zone, "__ZONE_NAME": "z2"})
    assert elsewhere == {"brokerDatas": [], "filterServerTable": {}, "queueDatas": []}
    assert b'{"0":"127' in server.ask(ROUTE, {**zone, "__ZONE_NAME": " "}).body


def test_order_topics_are_in_routes_only_when_enabled(tmp_path):
    for enabled, shown in (("true", "broker-a:4"), ("false", None)):
        server = OfflineServer(tmp_path, f"orderMessageEnable={enabled}")
        server.replay("wire-register-broker-req")
        kv = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102", "value": "broker-a:4"}
        server.ask(RequestCode.PUT_KV_CONFIG, kv)
        assert server.json(ROUTE, {"topic": "TBW102"}).get("orderTopicConf") == shown


def test_a_name_server_can_wait_before_it_serves_routes(tmp_path):
    server = OfflineServer(tmp_path, "needWaitForService=true\nwaitSecondsForService=2")
    server.replay("wire-register-broker-req")
    server.now_ms += 1999
    answer = server.ask(ROUTE, {"topic": "TBW102"})
    assert (answer.code, answer.remark) == (1, "name server not ready")
    server.now_ms += 1
    assert server.ask(ROUTE, {"topic": "TBW102"}).code == 0


def test_acting_masters_are_shown_when_supported(tmp_path):
    server = OfflineServer(tmp_path, "supportActingMaster=true")
    replica = {**MASTER, "brokerId": "1", "enableActingMaster": "true"}
    server.ask(REGISTER, replica, vectors.command("wire-register-broker-req").body)
    assert server.json(ROUTE, {"topic": "TBW102"})["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:19911"}


def test_topic_lists(with_master):
    assert "TBW102" in with_master.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    listed = with_master.json(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"})["topicList"]
    assert len(listed) == 13
    assert with_master.json(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "x"}) == {"topicList": []}
    assert with_master.json(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {
        "brokerAddr": "127.0.0.1:19911",
        "topicList": ["DefaultCluster", "broker-a"],
    }
    for code in (311, 312, 313):
        assert with_master.json(code) == {"topicList": []}


def test_topic_lists_can_be_disabled(tmp_path):
    server = OfflineServer(tmp_path, "enableAllTopicList=false\nenableTopicList=false")
    for code in (206, 224, 311, 312, 313):
        answer = server.ask(code, {"cluster": "x"})
        assert (answer.code, answer.remark) == (1, "disable")
