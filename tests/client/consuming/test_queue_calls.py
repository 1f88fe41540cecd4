"""Commits of a group against an offset table that loses concurrent first commits, as Java's does."""

import asyncio

import pytest

from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import ClientError
from twinlog.wire.bodies import MessageQueue


class RacingSession:
    """A broker that looks for the map of a topic and group, and makes it a moment later."""

    def __init__(self) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self.failures = 0
        self.in_flight = self.in_flight_max = 0

    async def ask_broker(self, queue, code, header):
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        key = f"{header.topic}@{header.consumer_group}"
        known = key in self.table
        await asyncio.sleep(0)
        self.in_flight -= 1
        if self.failures:
            self.failures -= 1
            raise ClientError("away")
        if known:
            self.table[key][header.queue_id] = header.commit_offset
        else:
            self.table[key] = {header.queue_id: header.commit_offset}


@pytest.mark.parametrize("failures", [0, 1])
async def test_first_commits_of_a_group_follow_one_another_and_later_ones_travel_together(failures):
    session = RacingSession()
    session.failures = failures
    calls = QueueCalls(session)  # pyright: ignore[reportArgumentType]

    async def commit_all(base):
        places = [calls.commit("g", MessageQueue("T", "b", n), base + n) for n in range(8)]
        return await asyncio.gather(*places, return_exceptions=True)

    results = await commit_all(10)
    assert sum(isinstance(one, ClientError) for one in results) == failures
    assert session.table["T@g"] == {n: 10 + n for n in range(failures, 8)}
    assert session.in_flight_max == 1
    await commit_all(20)
    assert session.table["T@g"] == {n: 20 + n for n in range(8)}
    assert session.in_flight_max == 8
