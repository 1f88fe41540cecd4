"""Routes that several callers wait for together."""

from __future__ import annotations

import asyncio

import pytest

from twinlog.client.errors import ClientClosed
from twinlog.client.routing.route_cache import RouteCache
from twinlog.client.tasks import TaskSet
from twinlog.wire.bodies import TopicRouteData


async def silent(topic: str) -> TopicRouteData:
    return await asyncio.get_running_loop().create_future()


def waiting_cache() -> tuple[RouteCache, TaskSet]:
    tasks = TaskSet()
    return RouteCache("127.0.0.1:9876", silent, lambda *changed: None, tasks), tasks


@pytest.mark.parametrize("method", ["get", "renew"])
async def test_a_call_that_waits_for_a_route_fails_when_the_client_is_closed(method):
    routes, tasks = waiting_cache()
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(getattr(routes, method)("T"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await tasks.close()
    assert [type(error) for error in failed.value.exceptions] == [ClientClosed]


@pytest.mark.parametrize("method", ["get", "renew"])
async def test_whoever_is_cancelled_while_the_client_closes_stays_cancelled(method):
    routes, tasks = waiting_cache()
    caller = asyncio.create_task(getattr(routes, method)("T"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await tasks.close()
    with pytest.raises(asyncio.CancelledError):
        await caller
