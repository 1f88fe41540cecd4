"""Registrations, leaving brokers and heartbeats."""

import asyncio
import json
import zlib
from types import SimpleNamespace

import pytest

from twinlog.nameserver.broker_handlers import BrokerHandlers
from twinlog.nameserver.registration import MinBrokerIdNotice
from twinlog.nameserver.request_checks import is_served
from twinlog.net.connection import Request
from twinlog.wire.codes import RequestCode, ResponseCode

from .offline import MASTER, REGISTER, ROUTE, OfflineServer, registration


class TestRegistration:
    def test_a_wrong_checksum_is_refused(self, server):
        answer = server.ask(REGISTER, {**MASTER, "bodyCrc32": "5"}, b"{}")
        assert (answer.code, answer.remark) == (1, "crc32 not match")

    def test_no_checksum_means_no_check(self, server):
        assert server.ask(REGISTER, {**MASTER, "bodyCrc32": "0"}, b"{}").code == 0

    def test_no_body_registers_an_empty_table(self, server):
        assert server.ask(REGISTER, MASTER).code == 0
        assert server.ctx.table.brokers["broker-a"].broker_addrs == {0: "127.0.0.1:19911"}

    @pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
    def test_a_missing_field_is_named(self, server, missing):
        fields = {key: value for key, value in MASTER.items() if key != missing}
        answer = server.ask(REGISTER, fields)
        assert (answer.code, answer.remark) == (1, f"the request has no {missing}, or one that cannot be read")

    def test_a_broken_body_is_refused_in_java_s_words(self, server):
        answer = server.ask(REGISTER, MASTER, b"{nonsense")
        assert answer.code == 1
        assert answer.remark.startswith("RemotingCommandException: Failed to decode RegisterBrokerBody")

    def test_a_registration_that_inflates_too_far_is_refused_and_counted(self, tmp_path):
        server = OfflineServer(tmp_path, "maxDecompressedRegistrationBytes=1000")
        answer = server.ask(REGISTER, {**MASTER, "compressed": "true"}, zlib.compress(b"0" * 100_000))
        assert answer.code == 1
        assert answer.remark.endswith(
            "grows beyond 1000 bytes: maxDecompressedRegistrationBytes is 1000; "
            "register fewer topics at once, or raise it"
        )
        assert server.ctx.limits.refused == {"maxDecompressedRegistrationBytes": 1}
        assert server.ctx.table.brokers == {}

    def test_an_increment_before_a_full_registration_is_refused(self, server):
        answer = server.replay("wire-register-single-topic-req")
        assert (answer.code, answer.remark) == (1, "register broker failed")

    def test_a_replica_without_a_live_master_gets_no_address(self, server):
        assert server.ask(REGISTER, {**MASTER, "brokerId": "1"}).fields == {}

    def test_a_master_without_an_ha_address_is_answered_without_one(self, server):
        server.ask(REGISTER, {key: value for key, value in MASTER.items() if key != "haServerAddr"})
        answer = server.ask(REGISTER, {**MASTER, "brokerId": "1", "brokerAddr": "r:1"})
        assert answer.fields == {"masterAddr": "127.0.0.1:19911"}

    def test_order_topics_travel_only_when_this_is_wanted(self, tmp_path):
        for wanted, body in (("true", b'{"table":{"T":"v"}}'), ("false", None)):
            server = OfflineServer(tmp_path, f"returnOrderTopicConfigToBroker={wanted}")
            server.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "v"})
            assert server.ask(REGISTER, MASTER).body == body

    def test_an_unchanged_body_is_not_read_again_but_refreshes_the_broker(self, with_master, monkeypatch):
        monkeypatch.setattr("twinlog.nameserver.broker_handlers.decode_registration", None)
        with_master.now_ms += 100
        assert with_master.replay("wire-register-broker-req").code == 0
        assert with_master.ctx.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms

    def test_complete_registrations_remove_topics(self, tmp_path):
        server = OfflineServer(tmp_path, "deleteTopicWithBrokerRegistration=true")
        server.replay("wire-register-broker-req")
        server.ask(REGISTER, MASTER)
        assert server.ctx.table.topics == {}

    def test_the_min_broker_id_is_notified_only_when_enabled(self, tmp_path):
        for enabled, count in (("true", 1), ("false", 0)):
            server = OfflineServer(tmp_path, f"notifyMinBrokerIdChanged={enabled}")
            server.ask(REGISTER, MASTER)
            server.ask(REGISTER, {**MASTER, "brokerId": "1", "brokerAddr": "r:1"})
            server.ask(RequestCode.UNREGISTER_BROKER, MASTER)
            assert server.notices == [MinBrokerIdNotice(1, "r:1", "127.0.0.1:19911", None, ("r:1",))][:count]


class TestQueueCounts:
    """A route with 2^31 queues ends every client that asks for it, so nobody gets one."""

    @pytest.mark.parametrize("queues", [-1, 65_537, 2**31 - 1])
    def test_a_topic_that_no_client_can_hold_gets_no_route_and_its_neighbours_do(self, server, queues):
        topics = {"BIG": {"readQueueNums": queues, "writeQueueNums": 4}, "T": {"readQueueNums": 4}}
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
        assert server.ask(REGISTER, MASTER, body).code == 0
        assert server.ask(ROUTE, {"topic": "BIG"}).code == ResponseCode.TOPIC_NOT_EXIST
        assert server.ask(ROUTE, {"topic": "T"}).code == 0
        assert server.ctx.limits.refused == {"maxTopicQueueNums": 1}

    def test_one_log_line_names_all_such_topics_of_a_registration(self, server, caplog):
        body = registration({f"T{n}": {"readQueueNums": -1, "writeQueueNums": 4} for n in range(5_000)})
        assert server.ask(REGISTER, MASTER, body).code == 0
        events = [record.msg for record in caplog.records if "no route" in record.msg.text]
        (event,) = events
        assert (event.fields["topics"], event.fields["some"]) == (5_000, "T0, T1, T2")
        assert event.fields["error"] == "-1 read and 4 write queues are not in 0 to 65536, which is maxTopicQueueNums"
        assert server.ctx.limits.refused == {"maxTopicQueueNums": 5_000}

    def test_they_are_found_where_the_body_is_read(self, tmp_path, monkeypatch):
        beside = []

        async def run(work):
            beside.append("begins")
            body = work()
            beside.append("ends")
            return body

        def counted(topic, limit):
            beside.append("looks")
            return is_served(topic, limit)

        monkeypatch.setattr("twinlog.nameserver.broker_handlers.is_served", counted)
        server = OfflineServer(tmp_path, run_beside=run)
        server.connection.closed = False
        body = registration({f"T{n}": {} for n in range(2)} | {"x" * 1_100_000: {}})
        assert server.ask(REGISTER, MASTER, body).code == 0
        assert beside == ["begins", *["looks"] * 3, "ends"]


class TestLargeRegistrations:
    def test_one_of_each_connection_waits_to_be_read(self, tmp_path):
        running, most = [], []

        async def run(work):
            running.append(1)
            most.append(len(running))
            for _ in range(3):
                await asyncio.sleep(0)
            running.pop()
            return work()

        brokers = BrokerHandlers(OfflineServer(tmp_path).ctx, run)
        bodies = [registration({f"T{n}": {}, "x" * 1_100_000: {}}) for n in range(4)]
        wires = [SimpleNamespace(peer_text="192.0.2.1:5", peer=("192.0.2.1", 5), closed=False) for _ in range(2)]

        async def crowd():
            asked = [
                Request(REGISTER, n, version=479, fields=MASTER, body=body, connection=wire)
                for wire in wires
                for n, body in enumerate(bodies)
            ]
            return await asyncio.gather(*(brokers.register(request) for request in asked))

        assert {answer.code for answer in asyncio.run(crowd())} == {0}
        assert (len(most), max(most)) == (8, 2)
        assert not brokers._reading


class TestTopicsOfTheTable:
    def test_brokers_together_register_topics_up_to_the_limit(self, tmp_path, caplog):
        server = OfflineServer(tmp_path, "maxRouteTopics=3")
        other = MASTER | {"brokerName": "broker-b", "brokerAddr": "127.0.0.1:29911"}
        assert server.ask(REGISTER, MASTER, registration({"A": {}, "B": {}})).code == 0
        body = registration({"B": {}, "C": {}, "D": {}, "E": {}})
        assert server.ask(REGISTER, other, body).code == 0
        assert set(server.ctx.table.topics) == {"A", "B", "C"}
        assert len(server.json(ROUTE, {"topic": "B"})["brokerDatas"]) == 2
        assert server.ctx.limits.refused == {"maxRouteTopics": 2}
        assert [record.msg.fields["topics"] for record in caplog.records if "no route" in record.msg.text] == [2]

        server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "A"})
        assert server.ask(REGISTER, other, body).code == 0  # the same body, and now there is room for one more
        assert set(server.ctx.table.topics) == {"B", "C", "D"}

    def test_room_that_a_leaving_broker_makes_is_used_by_an_unchanged_registration(self, tmp_path):
        server = OfflineServer(tmp_path, "maxRouteTopics=2")
        other = MASTER | {"brokerName": "broker-b", "brokerAddr": "127.0.0.1:29911"}
        body = registration({"C": {}, "D": {}})
        server.ask(REGISTER, MASTER, registration({"A": {}, "B": {}}))
        server.ask(REGISTER, other, body)
        assert server.ask(RequestCode.UNREGISTER_BROKER, MASTER).code == 0
        server.ask(REGISTER, other, body)
        assert set(server.ctx.table.topics) == {"C", "D"}


class TestKeepAlive:
    def test_a_data_version_is_compared_and_the_broker_refreshed(self, with_master):
        with_master.now_ms += 5
        same = b'{"counter":0,"stateVersion":0,"timestamp":1794727427753}'
        answer = with_master.ask(RequestCode.QUERY_DATA_VERSION, MASTER, same)
        assert (answer.code, answer.fields, answer.body) == (0, {"changed": "false"}, same)
        assert with_master.ctx.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms
        other = with_master.ask(RequestCode.QUERY_DATA_VERSION, MASTER, b'{"counter":1,"timestamp":2}')
        assert other.fields == {"changed": "true"}

    def test_an_unknown_broker_s_version_has_changed(self, server):
        answer = server.ask(RequestCode.QUERY_DATA_VERSION, MASTER, b"{}")
        assert (answer.code, answer.fields, answer.body) == (0, {"changed": "true"}, None)

    def test_a_heartbeat_refreshes(self, with_master):
        with_master.now_ms += 7
        assert with_master.ask(RequestCode.BROKER_HEARTBEAT, MASTER).code == 0
        assert with_master.ctx.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms
        assert with_master.ask(RequestCode.BROKER_HEARTBEAT, {"brokerAddr": "x"}).code == 0


def test_the_members_of_a_broker_group(with_master):
    ask = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    assert with_master.ask(901, ask).body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:19911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}}'
    )
    unknown = with_master.ask(901, {"clusterName": "c", "brokerName": "b"})
    assert (unknown.code, unknown.remark) == (0, "not set any response code")
    assert unknown.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"b","cluster":"c"}}'
