"""Times of requests by their codes, however they are answered."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.replication.test_replication_metrics import measured
from tests.broker.running import connected, pull
from tests.replication.cluster import running_cluster, send_all, until

from twinlog.broker.stats.rpc_times import RpcTimes, request_name, response_name, timed
from twinlog.client import Admin
from twinlog.net.connection import Request
from twinlog.net.errors import RequestRefused
from twinlog.wire.codes import RequestCode, ResponseCode


def total(times: RpcTimes, request: int, response: int = 0, held: bool = False) -> int:
    row = times.rows.get((request, response, held))
    return 0 if row is None else sum(row.counts)


async def test_sends_pulls_and_administration_are_counted_with_their_codes(tmp_path):
    async with running_cluster(tmp_path) as cluster, measured(cluster, "master") as (broker, metrics):
        times = broker.context.stats.rpc
        await send_all(broker, [b"one", b"two", b"x" * 3000])
        assert total(times, RequestCode.SEND_MESSAGE_V2) == 3
        async with connected(broker) as connection:
            await pull(connection, queueOffset="0")
            assert total(times, RequestCode.PULL_MESSAGE) == 1
            waiting = asyncio.create_task(
                pull(connection, queueOffset="3", sysFlag=str(2 | 4), suspendTimeoutMillis="15000")
            )
            await until(lambda: len(broker.context.holds) == 1, "the pull is held")
            await send_all(broker, [b"three"])
            await waiting
        assert total(times, RequestCode.PULL_MESSAGE, held=True) == 1
        async with Admin(cluster.names) as admin:
            await admin.runtime_info(broker.address)
            with pytest.raises(Exception, match="nothing"):
                await admin.topic_config(broker.address, "nothing")
        assert total(times, RequestCode.GET_BROKER_RUNTIME_INFO) == 1
        assert total(times, RequestCode.GET_TOPIC_CONFIG, ResponseCode.TOPIC_NOT_EXIST) == 1
        text = metrics.exposition().decode()
        labels = 'is_long_polling="true",le="+Inf",node_id="broker-a",node_type="broker",protocol_type="remoting"'
        assert labels + ',request_code="pull_message",response_code="success",result="success"} 1.0' in text


async def test_a_handler_that_fails_or_answers_later_is_counted_once():
    times = RpcTimes()

    def refuse(request: Request):
        raise RequestRefused(ResponseCode.NO_PERMISSION, "no")

    async def later(request: Request):
        await asyncio.sleep(0)
        return request.reply()

    handlers = timed({1: refuse, 2: later, 3: lambda request: None}, times)
    with pytest.raises(RequestRefused):
        handlers[1](Request(code=1))
    await handlers[2](Request(code=2))
    assert handlers[3](Request(code=3)) is None
    assert {key: sum(row.counts) for key, row in times.rows.items()} == {
        (1, ResponseCode.NO_PERMISSION, False): 1,
        (2, 0, False): 1,
    }


def test_codes_have_javas_names_and_unknown_ones_their_number():
    assert (request_name(310), response_name(0), response_name(22)) == ("send_message_v2", "success", "query_not_found")
    assert (request_name(99_999), response_name(99_999)) == ("99999", "99999")
