"""Bits of the logs of a running pair are flipped; clients get every message from both, and both logs are mended."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.broker.running import broker_conf, running_broker
from tests.faults.group import Group
from tests.interop.java_rocketmq import TEST_CONF
from tests.interop.replica_pair import SEGMENT, pull_everything, same_logs, until
from tests.replication.cluster import send_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
BODIES = [b"message %d " % number + b"x" * 300 for number in range(200)]
SIZES = {name: TEST_CONF[name] for name in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")}
REPAIRED = "a damaged message is repaired from its twin"


def test_bits_that_flip_in_the_logs_of_a_running_pair_are_repaired_and_every_message_is_read(tmp_path):
    """Seen to fail with haRepairFromTwin=false: the messages are left out."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    places = asyncio.run(write_stores(tmp_path))
    with Group(tmp_path).running() as group:
        group.start("master", "ASYNC_MASTER", 0)
        group.start("replica", "SLAVE", 1)
        until(lambda: group.replication("replica")["following"]["state"] == "following", "the replica follows", 60)
        hit = chance.sample(places[:-1:2], 20)  # a whole record follows each of them
        for broker, chosen in ((group.master, hit[:10]), (group.replica, hit[10:])):
            for at, size in chosen:
                flip(broker.store, 8 * at + chance.randrange(8 * size))
        for broker in (group.master, group.replica):
            until(lambda address=broker.address: read(address) == BODIES, "every message is read", 60)
            assert broker.output.read_text().count(REPAIRED) == 10
        assert same_logs(group.master.store, group.replica.store)


def read(address: str) -> list[bytes]:
    """What a consumer gets: of messages that take longer than a pull waits, nothing, and of others what was sent."""
    found = [one.body for one in pull_everything(address, "T", 1)]
    assert set(found) <= set(BODIES)
    return found


async def write_stores(home: Path) -> list[tuple[int, int]]:
    """Equal stores of a master and a replica, which did not write these messages; returns (place, size) of each."""
    async with running_broker(broker_conf(home / "first", mappedFileSizeCommitLog=SEGMENT, **SIZES)) as broker:
        assert await send_all(broker, BODIES) == BODIES
        assert broker.context is not None
        units = [broker.context.store.unit("T", 0, number) for number in range(len(BODIES))]
    (home / "first" / "config" / "twinlogInstance").unlink()
    for name in ("master", "replica"):
        shutil.copytree(home / "first", home / name / "store")
    return [unit[:2] for unit in units if unit is not None]


def flip(store: Path, bit: int) -> None:
    """Flip a bit of the log's file, as a disk does."""
    path = max(one for one in (store / "commitlog").iterdir() if int(one.name) <= bit // 8)
    at = bit // 8 - int(path.name)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, bytes([os.pread(descriptor, 1, at)[0] ^ 1 << bit % 8]), at)
    finally:
        os.close(descriptor)
