"""The pages for load balancers: 200 for yes, 503 for no."""

import asyncio
import json

import pytest
from tests.replication.cluster import running_cluster, twins, until

from twinlog.broker.replication.health import STARTING, Health, answer_page
from twinlog.telemetry.metrics import Metrics
from twinlog.telemetry.metrics_port import MetricsServer

MASTER = Health(state="running", role="SYNC_MASTER", may_acknowledge=True)
DOUBTFUL = Health(state="running", role="SYNC_MASTER")
REPLICA = Health(state="running", role="SLAVE", following=True, lag=2048)
LOST = Health(state="running", role="SLAVE")


@pytest.mark.parametrize(
    ("page", "yes"),
    [
        ("/master", [MASTER]),
        ("/replica", [REPLICA]),
        ("/replica?lag=2048", [REPLICA]),
        ("/replica?lag=2kB", [REPLICA]),
        ("/replica?lag=1MB", [REPLICA]),
        ("/replica?lag=2047", []),
        ("/readiness", [MASTER, REPLICA]),
        ("/health", [MASTER, DOUBTFUL, REPLICA, LOST, STARTING]),
    ],
)
def test_who_answers_yes(page, yes):
    path, _, query = page.partition("?")
    for health in (MASTER, DOUBTFUL, REPLICA, LOST, STARTING):
        status, _ = answer_page(health, path, query)
        assert status == (200 if health in yes else 503), health


def test_a_lag_that_is_not_a_size_is_a_bad_request():
    assert answer_page(REPLICA, "/replica", "lag=much")[0] == 400
    assert answer_page(REPLICA, "/elsewhere", "") is None


async def get(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_a_master_and_its_replica_answer_on_their_metrics_ports(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        two = await cluster.start("two", "SLAVE", 1)
        await twins(one, two)
        servers = []
        for broker in (one, two):
            server = MetricsServer(Metrics(), host="127.0.0.1")
            server.pages = broker.answer_page
            await server.start()
            servers.append(server)
        master, replica = (server.port for server in servers)
        await until(lambda: two.replication.replica.status.is_following, "it follows")
        assert [(await get(master, path))[0] for path in ("/master", "/replica", "/readiness")] == [200, 503, 200]
        assert [(await get(replica, path))[0] for path in ("/master", "/replica?lag=0", "/health")] == [503, 200, 200]
        assert json.loads((await get(replica, "/replica"))[1])["lag"] == 0
        assert (await get(master, "/metrics"))[0] == 200 and (await get(master, "/nothing"))[0] == 404
        one.context.guard.doubt()
        assert (await get(master, "/master"))[0] == 503, "one that may have been replaced is not the master"
        one.context.guard.confirm()
        for server in servers:
            await server.stop()
