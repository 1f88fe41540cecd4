import asyncio
import contextlib

import pytest

from twinlog.telemetry.metrics import Metrics
from twinlog.telemetry.metrics_port import MetricsServer


async def fetch(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.fixture
async def server():
    metrics = Metrics()
    metrics.gauge("one", "1").set(1)
    server = MetricsServer(metrics, host="127.0.0.1")
    await server.start()
    yield server
    await server.stop()


async def test_a_scrape_gets_the_numbers(server):
    answer = await fetch(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"\none 1.0\n" in answer


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET /x HTTP/1.1", b"404"), (b"POST /metrics HTTP/1.1", b"405"), (b"\xff\x00", b"405")],
)
async def test_other_requests_get_an_error_status(server, request_line, status):
    assert (await fetch(server.port, request_line + b"\r\n\r\n")).split()[1] == status


async def test_an_endless_request_is_dropped(server):
    with contextlib.suppress(ConnectionError):  # closed while our bytes were still on the way
        assert await fetch(server.port, b"x" * 70_000) == b""
    assert (await fetch(server.port, b"GET / HTTP/1.1\r\n\r\n")).split()[1] == b"200"
