import asyncio
import contextlib
import inspect
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.nameserver.handlers import NameServerHandlers, is_served
from twinlog.nameserver.kv_config import KvConfig
from twinlog.nameserver.route_table import MinBrokerIdNotice
from twinlog.net.connection import Request, answer_for_error
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import encode_command
from twinlog.wire.errors import WireError

from . import vectors


class Desk:
    """Handlers with a clock that the test turns, asked without a socket."""

    def __init__(self, tmp_path, text="", beside=None):
        self.now_ms = 1_000_000
        self.notices = []
        self.path = tmp_path / "namesrv.conf"
        self.path.write_text(text)
        conf = load_nameserver_conf(self.path, overrides={"kvConfigPath": str(tmp_path / "kv.json")})
        kv = KvConfig(conf.nameserver.kv_path)
        self.handlers = NameServerHandlers(
            conf, kv, clock_ms=lambda: self.now_ms, notify=self.notices.append, beside=beside
        )
        self._by_code = self.handlers.handlers()
        self.connection = SimpleNamespace(peer_text="192.0.2.1:5", peer=("192.0.2.1", 5))

    def ask(self, code, fields=None, body=None, version=479, opaque=1):
        request = Request(code, opaque, version=version, fields=fields, body=body, connection=self.connection)
        try:
            answer = self._by_code[code](request)
            return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer
        except Exception as error:
            return answer_for_error(request, error)

    def replay(self, name):
        """Ask what a real peer asked."""
        command = vectors.command(name)
        return self.ask(command.code, command.fields, command.body, command.version, command.opaque)

    def json(self, code, fields=None, **more):
        answer = self.ask(code, fields, **more)
        assert answer.code == 0, answer
        return json.loads(answer.body)


async def _awaited(answer):
    return await answer


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def with_master(desk):
    assert desk.replay("wire-register-broker-req").code == 0
    return desk


ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
REGISTER = RequestCode.REGISTER_BROKER
MASTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:19911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:19912",
    "brokerId": "0",
}


def registration(topics):
    wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()


def frame(name):
    return vectors.data(name)


def leave_an_empty_order_namespace(desk):
    """As at the time of the capture: a key was put and deleted again."""
    item = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "v"}
    desk.ask(RequestCode.PUT_KV_CONFIG, item)
    desk.ask(RequestCode.DELETE_KV_CONFIG, item)


class TestGoldenAnswers:
    def test_registering_a_master_answers_byte_for_byte(self, desk):
        assert encode_command(desk.replay("wire-register-broker-req")) == frame("wire-register-broker-resp")

    def test_registering_a_replica_answers_as_java(self, with_master):
        leave_an_empty_order_namespace(with_master)
        answer, golden = with_master.replay("wire-register-slave-req"), vectors.command("wire-register-slave-resp")
        assert (answer.code, answer.fields, answer.body) == (golden.code, golden.fields, golden.body)

    def test_an_increment_answers_byte_for_byte(self, with_master):
        leave_an_empty_order_namespace(with_master)
        answer = with_master.replay("wire-register-single-topic-req")
        assert encode_command(answer) == frame("wire-register-single-topic-resp")
        assert "%RETRY%VEC_CG" in with_master.handlers.table.topics

    def test_unregistering_answers_byte_for_byte(self, with_master):
        assert encode_command(with_master.replay("wire-unregister-broker-req")) == frame("wire-unregister-broker-resp")

    def test_a_route_is_byte_for_byte_java_s(self, with_master):
        queues = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
        with_master.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "VEC"}, queues)
        assert encode_command(with_master.replay("wire-route-req")) == frame("wire-route-resp")

    def test_a_route_for_an_old_client_has_bare_keys_byte_for_byte(self, with_master):
        answer = with_master.ask(ROUTE, {"topic": "TBW102"}, version=0, opaque=1008)
        assert encode_command(answer) == frame("wire-route-old-client-resp")

    def test_a_missing_route_is_byte_for_byte_java_s(self, desk):
        answer = desk.ask(ROUTE, {"topic": "nope"}, opaque=1004)
        assert encode_command(answer) == frame("wire-route-missing-resp")

    def test_the_cluster_info_is_byte_for_byte_java_s(self, with_master):
        assert encode_command(with_master.replay("wire-cluster-info-req")) == frame("wire-cluster-info-resp")


class TestRegistration:
    def test_a_wrong_checksum_is_refused(self, desk):
        answer = desk.ask(REGISTER, {**MASTER, "bodyCrc32": "5"}, b"{}")
        assert (answer.code, answer.remark) == (1, "crc32 not match")

    def test_no_checksum_means_no_check(self, desk):
        assert desk.ask(REGISTER, {**MASTER, "bodyCrc32": "0"}, b"{}").code == 0

    def test_no_body_registers_an_empty_table(self, desk):
        assert desk.ask(REGISTER, MASTER).code == 0
        assert desk.handlers.table.brokers["broker-a"].broker_addrs == {0: "127.0.0.1:19911"}

    @pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
    def test_a_missing_field_is_named(self, desk, missing):
        fields = {key: value for key, value in MASTER.items() if key != missing}
        answer = desk.ask(REGISTER, fields)
        assert (answer.code, answer.remark) == (1, f"the request has no {missing}, or one that cannot be read")

    def test_a_broken_body_is_told_as_java_tells_it(self, desk):
        answer = desk.ask(REGISTER, MASTER, b"{nonsense")
        assert answer.code == 1
        assert answer.remark.startswith("RemotingCommandException: Failed to decode RegisterBrokerBody")

    def test_an_increment_before_a_full_registration_is_refused(self, desk):
        answer = desk.replay("wire-register-single-topic-req")
        assert (answer.code, answer.remark) == (1, "register broker failed")

    def test_a_replica_without_a_live_master_is_told_none(self, desk):
        assert desk.ask(REGISTER, {**MASTER, "brokerId": "1"}).fields == {}

    def test_a_master_without_an_ha_address_is_told_without(self, desk):
        desk.ask(REGISTER, {key: value for key, value in MASTER.items() if key != "haServerAddr"})
        answer = desk.ask(REGISTER, {**MASTER, "brokerId": "1", "brokerAddr": "r:1"})
        assert answer.fields == {"masterAddr": "127.0.0.1:19911"}

    def test_order_topics_travel_only_when_this_is_wanted(self, tmp_path):
        for wanted, body in (("true", b'{"table":{"T":"v"}}'), ("false", None)):
            desk = Desk(tmp_path, f"returnOrderTopicConfigToBroker={wanted}")
            desk.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "v"})
            assert desk.ask(REGISTER, MASTER).body == body

    def test_an_unchanged_body_is_not_read_again_but_refreshes_the_broker(self, with_master, monkeypatch):
        monkeypatch.setattr("twinlog.nameserver.handlers.decode_registration", None)
        with_master.now_ms += 100
        assert with_master.replay("wire-register-broker-req").code == 0
        assert with_master.handlers.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms

    def test_complete_registrations_remove_topics(self, tmp_path):
        desk = Desk(tmp_path, "deleteTopicWithBrokerRegistration=true")
        desk.replay("wire-register-broker-req")
        desk.ask(REGISTER, MASTER)
        assert desk.handlers.table.topics == {}

    def test_the_min_broker_id_is_told_only_when_enabled(self, tmp_path):
        for enabled, count in (("true", 1), ("false", 0)):
            desk = Desk(tmp_path, f"notifyMinBrokerIdChanged={enabled}")
            desk.ask(REGISTER, MASTER)
            desk.ask(REGISTER, {**MASTER, "brokerId": "1", "brokerAddr": "r:1"})
            desk.ask(RequestCode.UNREGISTER_BROKER, MASTER)
            assert desk.notices == [MinBrokerIdNotice(1, "r:1", "127.0.0.1:19911", None, ("r:1",))][:count]


class TestKvLimits:
    @pytest.mark.parametrize(
        ("conf", "value", "remark"),
        [
            ("", "v" * 1_000_000, "a KV config of 1000002 characters: maxKvLength is 65536"),
            ("maxKvTableLength=100", "v" * 90, "the KV configs would have 124 characters: maxKvTableLength is 100"),
        ],
    )
    def test_a_value_that_is_too_long_is_refused_with_the_key(self, tmp_path, conf, value, remark):
        desk = Desk(tmp_path, conf)
        answer = desk.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": value})
        assert (answer.code, answer.remark) == (1, f"{remark}; keep less there, or raise it")
        assert sum(desk.handlers.limits.refused.values()) == 1
        assert desk.handlers.kv.namespace("N") is None


class TestQueueCounts:
    """A route with 2^31 queues ends every client that asks for it, so nobody gets one."""

    @pytest.mark.parametrize("queues", [-1, 65_537, 2**31 - 1])
    def test_a_topic_that_no_client_can_hold_gets_no_route_and_its_neighbours_do(self, desk, queues):
        topics = {"BIG": {"readQueueNums": queues, "writeQueueNums": 4}, "T": {"readQueueNums": 4}}
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
        assert desk.ask(REGISTER, MASTER, body).code == 0
        assert desk.ask(ROUTE, {"topic": "BIG"}).code == ResponseCode.TOPIC_NOT_EXIST
        assert desk.ask(ROUTE, {"topic": "T"}).code == 0
        assert desk.handlers.limits.refused == {"maxTopicQueueNums": 1}

    def test_one_line_tells_of_all_such_topics_of_a_registration(self, desk, caplog):
        body = registration({f"T{n}": {"readQueueNums": -1, "writeQueueNums": 4} for n in range(5_000)})
        assert desk.ask(REGISTER, MASTER, body).code == 0
        events = [record.msg for record in caplog.records if "no route" in record.msg.text]
        (event,) = events
        assert (event.fields["topics"], event.fields["some"]) == (5_000, "T0, T1, T2")
        assert event.fields["error"] == "-1 read and 4 write queues are not in 0 to 65536, which is maxTopicQueueNums"
        assert desk.handlers.limits.refused == {"maxTopicQueueNums": 5_000}

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

        monkeypatch.setattr("twinlog.nameserver.handlers.is_served", counted)
        desk = Desk(tmp_path, beside=run)
        desk.connection.closed = False
        body = registration({f"T{n}": {} for n in range(2)} | {"x" * 1_100_000: {}})
        assert desk.ask(REGISTER, MASTER, body).code == 0
        assert beside == ["begins", *["looks"] * 3, "ends"]

    def test_an_operator_cannot_register_such_a_topic_either(self, desk):
        queues = [{"brokerName": "broker-a", "readQueueNums": 2**31 - 1, "writeQueueNums": 4, "perm": 6}]
        body = json.dumps({"queueDatas": queues, "brokerDatas": []}).encode()
        answer = desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "BIG"}, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "topic BIG with 2147483647 read and 4 write queues: maxTopicQueueNums is 65536" in answer.remark


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

        desk = Desk(tmp_path, beside=run)
        bodies = [registration({f"T{n}": {}, "x" * 1_100_000: {}}) for n in range(4)]
        wires = [SimpleNamespace(peer_text="192.0.2.1:5", peer=("192.0.2.1", 5), closed=False) for _ in range(2)]

        async def crowd():
            asked = [
                Request(REGISTER, n, version=479, fields=MASTER, body=body, connection=wire)
                for wire in wires
                for n, body in enumerate(bodies)
            ]
            return await asyncio.gather(*(desk.handlers.register_broker(request) for request in asked))

        assert {answer.code for answer in asyncio.run(crowd())} == {0}
        assert (len(most), max(most)) == (8, 2)
        assert not desk.handlers._reading


class TestTopicsOfTheTable:
    def test_brokers_together_register_topics_up_to_the_limit(self, tmp_path, caplog):
        desk = Desk(tmp_path, "maxRouteTopics=3")
        other = MASTER | {"brokerName": "broker-b", "brokerAddr": "127.0.0.1:29911"}
        assert desk.ask(REGISTER, MASTER, registration({"A": {}, "B": {}})).code == 0
        body = registration({"B": {}, "C": {}, "D": {}, "E": {}})
        assert desk.ask(REGISTER, other, body).code == 0
        assert set(desk.handlers.table.topics) == {"A", "B", "C"}
        assert len(desk.json(ROUTE, {"topic": "B"})["brokerDatas"]) == 2
        assert desk.handlers.limits.refused == {"maxRouteTopics": 2}
        assert [record.msg.fields["topics"] for record in caplog.records if "no route" in record.msg.text] == [2]

        desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "A"})
        assert desk.ask(REGISTER, other, body).code == 0  # the same body, and now there is room for one more
        assert set(desk.handlers.table.topics) == {"B", "C", "D"}

    def test_room_that_a_leaving_broker_makes_is_used_by_an_unchanged_registration(self, tmp_path):
        desk = Desk(tmp_path, "maxRouteTopics=2")
        other = MASTER | {"brokerName": "broker-b", "brokerAddr": "127.0.0.1:29911"}
        body = registration({"C": {}, "D": {}})
        desk.ask(REGISTER, MASTER, registration({"A": {}, "B": {}}))
        desk.ask(REGISTER, other, body)
        assert desk.ask(RequestCode.UNREGISTER_BROKER, MASTER).code == 0
        desk.ask(REGISTER, other, body)
        assert set(desk.handlers.table.topics) == {"C", "D"}

    def test_an_operator_s_topic_counts_as_well(self, tmp_path):
        desk = Desk(tmp_path, "maxRouteTopics=2")
        desk.ask(REGISTER, MASTER, registration({"A": {}, "B": {}}))
        body = json.dumps({"queueDatas": [{"brokerName": "broker-a", "perm": 6}], "brokerDatas": []}).encode()
        assert desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "A"}, body).code == 0
        answer = desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "C"}, body)
        assert (answer.code, answer.remark) == (
            ResponseCode.INVALID_PARAMETER,
            "topic C beside 2 others: maxRouteTopics is 2; delete some, or raise it",
        )


class TestKeepAlive:
    def test_a_data_version_is_compared_and_the_broker_refreshed(self, with_master):
        with_master.now_ms += 5
        same = b'{"counter":0,"stateVersion":0,"timestamp":1794727427753}'
        answer = with_master.ask(RequestCode.QUERY_DATA_VERSION, MASTER, same)
        assert (answer.code, answer.fields, answer.body) == (0, {"changed": "false"}, same)
        assert with_master.handlers.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms
        other = with_master.ask(RequestCode.QUERY_DATA_VERSION, MASTER, b'{"counter":1,"timestamp":2}')
        assert other.fields == {"changed": "true"}

    def test_an_unknown_broker_s_version_has_changed(self, desk):
        answer = desk.ask(RequestCode.QUERY_DATA_VERSION, MASTER, b"{}")
        assert (answer.code, answer.fields, answer.body) == (0, {"changed": "true"}, None)

    def test_a_heartbeat_refreshes(self, with_master):
        with_master.now_ms += 7
        assert with_master.ask(RequestCode.BROKER_HEARTBEAT, MASTER).code == 0
        assert with_master.handlers.table.live["DefaultCluster", "127.0.0.1:19911"].heard_ms == with_master.now_ms
        assert with_master.ask(RequestCode.BROKER_HEARTBEAT, {"brokerAddr": "x"}).code == 0


class TestRoutes:
    def test_a_request_without_a_topic_finds_null(self, desk):
        assert "topic: null\nSee " in desk.ask(ROUTE).remark

    @pytest.mark.parametrize(
        ("version", "fields", "quoted"),
        [(401, {}, True), (400, {}, False), (0, {"acceptStandardJsonOnly": "true"}, True)],
    )
    def test_keys_are_quoted_for_those_who_need_it(self, with_master, version, fields, quoted):
        body = with_master.ask(ROUTE, {"topic": "TBW102", **fields}, version=version).body
        assert (b'{"0":"127' in body, b'{0:"127' in body) == (quoted, not quoted)

    def test_the_quoted_form_is_ascii(self, desk):
        desk.ask(REGISTER, {**MASTER, "brokerName": "中😀"}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}')
        queues = '{"queueDatas":[{"brokerName":"中😀","perm":6}]}'.encode()
        desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, queues)
        body = desk.ask(ROUTE, {"topic": "T"}).body
        assert rb'"brokerName":"\u4E2D\uD83D\uDE00"' in body
        assert json.loads(body)["queueDatas"][0]["brokerName"] == "中😀"

    def test_a_zone_rewrites_the_body_with_bare_keys(self, desk):
        body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'
        desk.ask(REGISTER, {**MASTER, "__ZONE_NAME": "z1"}, body)
        zone = {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": "Z1"}
        assert b'{0:"127' in desk.ask(ROUTE, zone).body
        elsewhere = desk.json(ROUTE, {**zone, "__ZONE_NAME": "z2"})
        assert elsewhere == {"brokerDatas": [], "filterServerTable": {}, "queueDatas": []}
        assert b'{"0":"127' in desk.ask(ROUTE, {**zone, "__ZONE_NAME": " "}).body

    def test_order_topics_are_in_routes_only_when_enabled(self, tmp_path):
        for enabled, shown in (("true", "broker-a:4"), ("false", None)):
            desk = Desk(tmp_path, f"orderMessageEnable={enabled}")
            desk.replay("wire-register-broker-req")
            kv = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102", "value": "broker-a:4"}
            desk.ask(RequestCode.PUT_KV_CONFIG, kv)
            assert desk.json(ROUTE, {"topic": "TBW102"}).get("orderTopicConf") == shown

    def test_a_name_server_can_wait_before_it_serves_routes(self, tmp_path):
        desk = Desk(tmp_path, "needWaitForService=true\nwaitSecondsForService=2")
        desk.replay("wire-register-broker-req")
        desk.now_ms += 1999
        answer = desk.ask(ROUTE, {"topic": "TBW102"})
        assert (answer.code, answer.remark) == (1, "name server not ready")
        desk.now_ms += 1
        assert desk.ask(ROUTE, {"topic": "TBW102"}).code == 0

    def test_acting_masters_are_shown_when_supported(self, tmp_path):
        desk = Desk(tmp_path, "supportActingMaster=true")
        replica = {**MASTER, "brokerId": "1", "enableActingMaster": "true"}
        desk.ask(REGISTER, replica, vectors.command("wire-register-broker-req").body)
        assert desk.json(ROUTE, {"topic": "TBW102"})["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:19911"}


class TestAdministration:
    def test_topic_lists(self, with_master):
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

    def test_topic_lists_can_be_disabled(self, tmp_path):
        desk = Desk(tmp_path, "enableAllTopicList=false\nenableTopicList=false")
        for code in (206, 224, 311, 312, 313):
            answer = desk.ask(code, {"cluster": "x"})
            assert (answer.code, answer.remark) == (1, "disable")

    def test_write_permissions_are_wiped_and_added(self, with_master):
        assert with_master.ask(205, {"brokerName": "broker-a"}).fields == {"wipeTopicCount": "13"}
        assert with_master.json(ROUTE, {"topic": "TBW102"})["queueDatas"][0]["perm"] == 5
        assert with_master.ask(327, {"brokerName": "broker-a"}).fields == {"addTopicCount": "13"}
        assert with_master.json(ROUTE, {"topic": "TBW102"})["queueDatas"][0]["perm"] == 6
        assert with_master.ask(205, {"brokerName": "nobody"}).fields == {"wipeTopicCount": "0"}

    def test_a_topic_is_deleted_and_comes_back_with_the_next_registration(self, with_master):
        assert with_master.ask(216, {"topic": "TBW102"}).code == 0
        assert with_master.ask(ROUTE, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST
        with_master.replay("wire-register-broker-req")
        assert with_master.ask(ROUTE, {"topic": "TBW102"}).code == 0

    def test_the_members_of_a_broker_group(self, with_master):
        ask = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
        assert with_master.ask(901, ask).body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:19911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster"}}'
        )
        unknown = with_master.ask(901, {"clusterName": "c", "brokerName": "b"})
        assert (unknown.code, unknown.remark) == (0, "not set any response code")
        assert unknown.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"b","cluster":"c"}}'

    def test_kv_configs(self, desk):
        item = {"namespace": "N", "key": "k", "value": "v"}
        assert desk.ask(100, item).code == 0
        assert desk.ask(101, item).fields == {"value": "v"}
        assert desk.json(219, {"namespace": "N"}) == {"table": {"k": "v"}}
        assert desk.ask(102, item).code == 0
        missing = desk.ask(101, item)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
        assert desk.json(219, {"namespace": "N"}) == {"table": {}}
        unknown = desk.ask(219, {"namespace": "M"})
        assert (unknown.code, unknown.remark) == (22, "No config item, Namespace: M")

    @pytest.mark.parametrize("missing", ["namespace", "key"])
    def test_a_kv_config_needs_namespace_and_key(self, desk, missing):
        fields = {key: "x" for key in ("namespace", "key", "value") if key != missing}
        answer = desk.ask(100, fields)
        assert (answer.code, answer.remark) == (1, "namespace or key is null")

    def test_a_kv_config_that_cannot_be_written_is_not_kept(self, desk, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        answer = desk.ask(100, {"namespace": "N", "key": "k", "value": "v"})
        assert answer.code == 1 and "No space left" in answer.remark
        assert desk.ask(101, {"namespace": "N", "key": "k"}).code == 22

    def test_settings_are_listed_sorted(self, desk):
        lines = desk.ask(319).body.decode().splitlines()
        keys = [line.partition("=")[0] for line in lines]
        assert keys == sorted(keys)
        assert "scanNotActiveBrokerInterval=5000" in lines and "serverChannelMaxIdleTimeSeconds=120" in lines

    def test_an_update_takes_effect_and_goes_into_the_file(self, tmp_path):
        desk = Desk(tmp_path, "# mine\norderMessageEnable=false\n")
        assert desk.ask(318, body=b"orderMessageEnable=true\nnoSuchKey=1").code == 0
        assert desk.handlers.conf.nameserver.order_topics_in_routes
        assert desk.path.read_text() == "# mine\norderMessageEnable=true\n"

    def test_the_rest_of_a_file_in_latin_1_survives_an_update(self, tmp_path):
        desk = Desk(tmp_path)
        desk.path.write_bytes(b"# f\xfcr uns\n")
        assert desk.ask(318, body=b"orderMessageEnable=true").code == 0
        assert desk.path.read_text() == "# f\u00fcr uns\norderMessageEnable=true\n"

    def test_what_cannot_be_written_is_refused_in_one_line(self, desk, caplog, monkeypatch):
        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("twinlog.nameserver.handlers.rewrite_file", full)
        monkeypatch.setattr("twinlog.nameserver.kv_config.replace_file", full)
        for code, fields in ((318, None), (100, {"namespace": "n", "key": "k", "value": "v"})):
            answer = desk.ask(code, fields, body=b"orderMessageEnable=true")
            assert answer.code == 1 and answer.remark.endswith("No space left on device; nothing was changed")
        assert not desk.handlers.conf.nameserver.order_topics_in_routes
        assert caplog.text.count("No space left") == 2 and "Traceback" not in caplog.text

    def test_keys_that_nothing_reads_are_named_in_the_log(self, desk, caplog):
        desk.ask(318, body=b"serverWorkerThreads=3")
        assert "serverWorkerThreads" in caplog.text

    @pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
    def test_black_listed_settings_are_refused(self, desk, key):
        answer = desk.ask(318, body=f"orderMessageEnable=true\n{key}=/etc/x".encode())
        assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        assert not desk.handlers.conf.nameserver.order_topics_in_routes

    def test_a_setting_that_needs_a_restart_is_refused(self, desk):
        assert desk.ask(318, body=b"listenPort=1").code == 16

    def test_a_bad_value_is_refused(self, desk):
        answer = desk.ask(318, body=b"orderMessageEnable=maybe")
        assert answer.code == 1 and "orderMessageEnable=maybe is neither true nor false" in answer.remark
        assert desk.ask(318, body=b"\xff").code == 1
        assert desk.ask(318).code == 0


names = st.sampled_from(
    ["brokerName", "brokerAddr", "clusterName", "brokerId", "topic", "cluster", "namespace", "key", "value"]
)


@pytest.fixture(scope="module")
def hostile_desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("hostile"))


@given(
    code=st.sampled_from(
        [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 318, 322, 901, 904]
    ),
    fields=st.none() | st.dictionaries(names, st.text(max_size=8)),
    body=st.none() | st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b"null", b"1", b'{"queueDatas":[{}]}']),
    version=st.sampled_from([0, 36, 400, 479]),
)
def test_hostile_requests_get_an_answer_and_are_never_a_surprise(hostile_desk, code, fields, body, version):
    request = Request(code, 1, version=version, fields=fields, body=body, connection=hostile_desk.connection)
    with contextlib.suppress(WireError):
        try:
            answer = hostile_desk._by_code[code](request)
            answer = asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer
        except Exception as error:
            expected = {"RequestRefused", "NameServerError", "BodyError"}
            assert type(error).__name__ in expected, error
            return
        assert encode_command(answer)
