"""What operators change in the routes."""

import json

from twinlog.wire.codes import RequestCode, ResponseCode

from .offline import MASTER, REGISTER, ROUTE, OfflineServer, registration


def test_write_permissions_are_wiped_and_added(with_master):
    assert with_master.ask(205, {"brokerName": "broker-a"}).fields == {"wipeTopicCount": "13"}
    assert with_master.json(ROUTE, {"topic": "TBW102"})["queueDatas"][0]["perm"] == 5
    assert with_master.ask(327, {"brokerName": "broker-a"}).fields == {"addTopicCount": "13"}
    assert with_master.json(ROUTE, {"topic": "TBW102"})["queueDatas"][0]["perm"] == 6
    assert with_master.ask(205, {"brokerName": "nobody"}).fields == {"wipeTopicCount": "0"}


def test_a_topic_is_deleted_and_comes_back_with_the_next_registration(with_master):
    assert with_master.ask(216, {"topic": "TBW102"}).code == 0
    assert with_master.ask(ROUTE, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST
    with_master.replay("wire-register-broker-req")
    assert with_master.ask(ROUTE, {"topic": "TBW102"}).code == 0


def test_an_operator_cannot_register_a_topic_with_more_queues_than_clients_can_use(server):
    queues = [{"brokerName": "broker-a", "readQueueNums": 2**31 - 1, "writeQueueNums": 4, "perm": 6}]
    body = json.dumps({"queueDatas": queues, "brokerDatas": []}).encode()
    answer = server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "BIG"}, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "topic BIG with 2147483647 read and 4 write queues: maxTopicQueueNums is 65536" in answer.remark


def test_an_operator_s_topic_counts_for_the_limit_of_topics(tmp_path):
    server = OfflineServer(tmp_path, "maxRouteTopics=2")
    server.ask(REGISTER, MASTER, registration({"A": {}, "B": {}}))
    body = json.dumps({"queueDatas": [{"brokerName": "broker-a", "perm": 6}], "brokerDatas": []}).encode()
    assert server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "A"}, body).code == 0
    answer = server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "C"}, body)
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "topic C beside 2 others: maxRouteTopics is 2; delete some, or raise it",
    )
