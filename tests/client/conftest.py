from collections.abc import AsyncIterator

import pytest
from tests.client.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running
