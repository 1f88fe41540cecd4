"""A broker of its own for a test, and a raw connection to it."""

import pytest
from tests.broker.running import broker_conf, connected, running_broker


@pytest.fixture
async def broker(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as running:
        yield running


@pytest.fixture
async def connection(broker):
    async with connected(broker) as opened:
        yield opened
