"""One metadata tick between Twinlog peers, idle and with one changed topic, as the tables grow.

Pairs of all sizes are up together and take turns, so that a busy moment of the machine meets all of them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.rows import Row
from twinlog.metadata.tables import open_tables
from twinlog.metadata.topics import TopicTable
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.settings.replication import ReplicationSettings
from twinlog.wire.bodies import TopicConfig
from twinlog.wire.command import Command, encode_command
from twinlog.wire.twinlog_codes import TwinlogCode

SIZES = (1_000, 10_000, 100_000)
_TICKS = 50


def measure_metadata(folder: Path, *, rounds: int) -> list[Row]:
    rows: list[Row] = []
    for topics, (idle, changed) in asyncio.run(_all_sizes(folder, rounds)).items():
        for name, figures in (("an idle tick", idle), ("a tick with one changed topic", changed)):
            cpu = Row(f"metadata, {topics:,} topics: CPU of {name}", "us", "same +- 20 %", higher_is_better=False)
            size = Row(f"metadata, {topics:,} topics: bytes of {name}", "bytes", "same", higher_is_better=False)
            cpu.twinlog, size.twinlog = [cpu_us for cpu_us, _ in figures], [count for _, count in figures]
            rows += [cpu, size]
        whole = sum(map(len, table_of(topics).encode_file()))
        name = f"metadata, {topics:,} topics: bytes of the topic table, which a Java replica gets at every tick"
        rows.append(Row(name, "bytes", "", higher_is_better=False, java=[whole]))
    return rows


def table_of(topics: int) -> TopicTable:
    table = TopicTable()
    table.put_all({f"T{n}": TopicConfig(topic_name=f"T{n}") for n in range(topics)}, 3)
    return table


Figures = list[tuple[float, int]]  # CPU in us, bytes moved


async def _all_sizes(folder: Path, rounds: int) -> dict[int, tuple[Figures, Figures]]:
    pairs = {topics: _Pair(folder / str(topics), topics) for topics in SIZES}
    figures: dict[int, tuple[Figures, Figures]] = {topics: ([], []) for topics in SIZES}
    for pair in pairs.values():
        await pair.start()
    for number in range(rounds + 1):  # the first round warms up
        for topics, pair in pairs.items():
            idle, changed = await pair.idle_tick(), await pair.changed_tick(number)
            if number:
                figures[topics][0].append(idle)
                figures[topics][1].append(changed)
    for pair in pairs.values():
        await pair.stop()
    return figures


class _Pair:
    """A master's tables behind a server, and a replica's that follow them."""

    def __init__(self, home: Path, topics: int) -> None:
        self._home = home
        self._master, self._replica = open_tables(None, 1), open_tables(home, 2)
        self._master.topics.put_all(table_of(topics).rows, 3)
        self._moved = 0
        self._server = Server({TwinlogCode.METADATA_CHANGES: self._answer})
        self._pool = ConnectionPool()
        settings = ReplicationSettings()
        self._sync = MetadataSyncService(
            lambda: settings,
            self._replica,
            self._pool,
            own_address="127.0.0.1:1",
            clock_ms=lambda: time.time_ns() // 1_000_000,
        )

    def _answer(self, request):
        answered = request.reply(body=encode_changes(self._master, dict(request.fields or {})))
        asked = Command(request.code, request.opaque, fields=request.fields, body=request.body)
        self._moved += len(encode_command(asked)) + len(encode_command(answered))
        return answered

    async def start(self) -> None:
        await self._server.start("127.0.0.1", 0)
        self._sync.master_is_at(f"127.0.0.1:{self._server.port}")
        await self._sync.sync()
        assert self._replica.topics.rows == self._master.topics.rows

    async def stop(self) -> None:
        await self._pool.close()
        await self._server.stop()

    async def idle_tick(self) -> tuple[float, int]:
        written = self._files()
        self._moved, before = 0, time.process_time()
        for _ in range(_TICKS):
            await self._sync.sync()
        taken = time.process_time() - before
        assert written == self._files(), "an idle tick wrote to the disk"
        return taken / _TICKS * 1e6, self._moved // _TICKS

    async def changed_tick(self, number: int) -> tuple[float, int]:
        """The cost of the change itself, without the file of the whole table that is rewritten beside it."""
        files = [table.file for table in self._replica]
        for table in self._replica:
            table.file = None
        taken, moved = 0.0, 0
        for step in range(_TICKS):
            config = TopicConfig(topic_name="T7", perm=step % 2 + 4)
            self._master.topics.put("T7", config, 100 + number * _TICKS + step)
            self._moved, before = 0, time.process_time()
            await self._sync.sync()
            taken += time.process_time() - before
            moved += self._moved
        for table, file in zip(self._replica, files, strict=True):
            table.file = file
        return taken / _TICKS * 1e6, moved // _TICKS

    def _files(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self._home.glob("*")}
