"""Golden answers of all handlers, and hostile requests to them."""

import asyncio
import contextlib
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.net.connection import Request
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import encode_command
from twinlog.wire.errors import WireError

from . import vectors
from .offline import ROUTE, OfflineServer, awaited


def frame(name):
    return vectors.data(name)


def leave_an_empty_order_namespace(server):
    """As at the time of the capture: a key was put and deleted again."""
    item = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "v"}
    server.ask(RequestCode.PUT_KV_CONFIG, item)
    server.ask(RequestCode.DELETE_KV_CONFIG, item)


class TestGoldenAnswers:
    def test_registering_a_master_answers_byte_for_byte(self, server):
        assert encode_command(server.replay("wire-register-broker-req")) == frame("wire-register-broker-resp")

    def test_registering_a_replica_answers_as_java(self, with_master):
        leave_an_empty_order_namespace(with_master)
        answer, golden = with_master.replay("wire-register-slave-req"), vectors.command("wire-register-slave-resp")
        assert (answer.code, answer.fields, answer.body) == (golden.code, golden.fields, golden.body)

    def test_an_increment_answers_byte_for_byte(self, with_master):
        leave_an_empty_order_namespace(with_master)
        answer = with_master.replay("wire-register-single-topic-req")
        assert encode_command(answer) == frame("wire-register-single-topic-resp")
        assert "%RETRY%VEC_CG" in with_master.ctx.table.topics

    def test_unregistering_answers_byte_for_byte(self, with_master):
        assert encode_command(with_master.replay("wire-unregister-broker-req")) == frame("wire-unregister-broker-resp")

    def test_a_route_is_byte_for_byte_java_s(self, with_master):
        queues = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
        with_master.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "VEC"}, queues)
        assert encode_command(with_master.replay("wire-route-req")) == frame("wire-route-resp")

    def test_a_route_for_an_old_client_has_bare_keys_byte_for_byte(self, with_master):
        answer = with_master.ask(ROUTE, {"topic": "TBW102"}, version=0, opaque=1008)
        assert encode_command(answer) == frame("wire-route-old-client-resp")

    def test_a_missing_route_is_byte_for_byte_java_s(self, server):
        answer = server.ask(ROUTE, {"topic": "nope"}, opaque=1004)
        assert encode_command(answer) == frame("wire-route-missing-resp")

    def test_the_cluster_info_is_byte_for_byte_java_s(self, with_master):
        assert encode_command(with_master.replay("wire-cluster-info-req")) == frame("wire-cluster-info-resp")


names = st.sampled_from(
    ["brokerName", "brokerAddr", "clusterName", "brokerId", "topic", "cluster", "namespace", "key", "value"]
)


@pytest.fixture(scope="module")
def hostile_server(tmp_path_factory):
    return OfflineServer(tmp_path_factory.mktemp("hostile"))


@given(
    code=st.sampled_from(
        [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 318, 322, 901, 904]
    ),
    fields=st.none() | st.dictionaries(names, st.text(max_size=8)),
    body=st.none() | st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b"null", b"1", b'{"queueDatas":[{}]}']),
    version=st.sampled_from([0, 36, 400, 479]),
)
def test_hostile_requests_get_an_answer_and_are_never_a_surprise(hostile_server, code, fields, body, version):
    request = Request(code, 1, version=version, fields=fields, body=body, connection=hostile_server.connection)
    with contextlib.suppress(WireError):
        try:
            answer = hostile_server.by_code[code](request)
            answer = asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
        except Exception as error:
            expected = {"RequestRefused", "NameServerError", "BodyError"}
            assert type(error).__name__ in expected, error
            return
        assert encode_command(answer)
