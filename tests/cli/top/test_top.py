"""`twinlog top` against a running pair: its screen driven by keys, and its forms for scripts."""

import asyncio
import json

import pytest
from tests.cli.terminals import in_terminal
from tests.replication.cluster import running_cluster, send_all, twins
from textual.widgets import DataTable, Input, Static
from typer.testing import CliRunner

from twinlog.cli.main import app as twinlog
from twinlog.cli.top.app import Watcher
from twinlog.cli.top.grids import Cell, Grid, Row, arranged
from twinlog.cli.top.screen import TopScreen
from twinlog.client import Admin, ConsumerOptions, Outgoing, Producer, PushConsumer


@pytest.fixture
async def cluster(tmp_path, monkeypatch):
    """A pair with two topics; how full the disk of this machine is does not matter."""
    monkeypatch.setattr("twinlog.observe.cluster.health.DISK_SHARE_WARNING", 2.0)
    monkeypatch.setattr("twinlog.observe.cluster.health.DISK_SHARE_CRITICAL", 2.0)
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        cluster.master = master
        cluster.replica = await cluster.start("replica", "SLAVE", 1)
        await twins(master, cluster.replica)
        async with Admin(cluster.names) as admin:
            for topic in ("Orders", "Invoices"):
                await admin.create_topic(topic, queues=2)
        async with Producer(cluster.names, "producers") as producer:
            for topic, count in (("Orders", 7), ("Invoices", 3)):
                for number in range(count):
                    await producer.send(Outgoing(topic, f"{number}"))
        yield cluster


def rows(screen, tab):
    table = screen.query_one(f"#{tab}-table", DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


async def shown(pilot, tab, wanted, seconds=20):
    """Wait until the table of `tab` satisfies `wanted`; its rows."""
    async with asyncio.timeout(seconds):
        while not wanted(found := rows(pilot.app, tab)):
            await pilot.pause(0.05)
    return found


async def test_the_screen_shows_the_pair_and_its_keys_work(cluster):
    async def ignore(_):
        pass

    consumer = PushConsumer(cluster.names, "order-readers", ignore, consumer_options=ConsumerOptions(commit_ms=200))
    consumer.subscribe("Orders")
    async with consumer, Admin(cluster.names) as admin:
        screen = TopScreen(Watcher(admin).round, cluster.names, 0.2)
        async with screen.run_test(size=(120, 30)) as pilot:
            found = await shown(pilot, "brokers", lambda found: len(found) == 2)
            assert [row[:4] for row in found] == [
                ["broker-a", "0", cluster.master.address, "healthy"],
                ["broker-a", "1", cluster.replica.address, "healthy"],
            ]
            assert "2 brokers in 1 groups" in str(screen.query_one("#headline", Static).render())
            await pilot.press("r")
            (replica,) = await shown(pilot, "replicas", lambda found: [row[3] for row in found] == ["following"])
            assert replica[4:6] == ["yes", "0 B"]
            await pilot.press("t")
            await shown(
                pilot,
                "topics",
                lambda found: [row[:1] + row[4:5] for row in found] == [["Invoices", "3"], ["Orders", "7"]],
            )
            for _ in range(5):  # Topic, Brokers, Queues, In/s, Stored
                await pilot.press("s")
            await pilot.press("v")
            assert [row[0] for row in await shown(pilot, "topics", lambda found: found[0][0] == "Orders")] == [
                "Orders",
                "Invoices",
            ]
            await pilot.press("slash", *"invo")
            assert [row[0] for row in await shown(pilot, "topics", lambda found: len(found) == 1)] == ["Invoices"]
            await pilot.press("escape")
            await shown(pilot, "topics", lambda found: len(found) == 2)
            assert screen.query_one("#filter", Input).value == ""
            await pilot.press("g")
            await shown(
                pilot, "groups", lambda found: [row[:2] + row[4:5] for row in found] == [["order-readers", "1", "0"]]
            )
            await pilot.press("p")
            rounds = screen.rounds
            await pilot.pause(0.6)
            assert screen.paused and screen.rounds - rounds <= 1
            await pilot.press("p", "minus", "minus")
            assert screen.interval_s == 2.0
            await pilot.press("plus", "plus", "b")
            await cluster.stop("replica")
            dead = await shown(pilot, "brokers", lambda found: [row[3] for row in found] == ["healthy", "unhealthy"])
            assert "not registered any more" in dead[1][-1] or "does not answer" in dead[1][-1]
            await pilot.press("q")


async def test_scripts_get_tables_or_json(cluster):
    def run(*words):
        return CliRunner().invoke(twinlog, ["top", "-n", cluster.names, *words])

    await send_all(cluster.master, [b"x"])
    text = (await asyncio.to_thread(run)).output
    assert "#Broker" in text and "#Topic" in text and cluster.replica.address in text and "all healthy" in text
    data = json.loads((await asyncio.to_thread(run, "--json")).output)
    assert [one["Addr"] for one in data["brokers"]] == [cluster.master.address, cluster.replica.address]
    assert {one["Topic"]: one["Stored"] for one in data["topics"]}["Orders"] == 7
    assert data["replicas"][0]["Lag"] == 0
    failed = await asyncio.to_thread(CliRunner().invoke, twinlog, ["top", "-n", "127.0.0.1:1", "--once"])
    assert failed.exit_code == 1


async def test_it_runs_in_a_real_terminal_of_80_columns(cluster):
    words = ["top", "-n", cluster.names, "-i", "0.2"]

    def is_shown(text):
        return cluster.master.address in text and "Quit" in text

    for key in ("q", "\x03"):
        screen = await asyncio.to_thread(in_terminal, words, stop_when=is_shown, stop_key=key)
        assert screen.status == 0 and "Brokers" in screen.raw and cluster.master.address in screen.raw


def test_rows_are_sorted_by_value_and_what_is_unknown_stands_last():
    cells = [(Cell("b", "b"), Cell(10, "10")), (Cell("a", "a"), Cell(None, "-")), (Cell("c", "c"), Cell(9, "9"))]
    grid = Grid(("Name", "Count"), tuple(Row(each) for each in cells))

    def names(found):
        return [row.cells[0].text for row in found.rows]

    assert names(arranged(grid, None)) == ["b", "a", "c"] and names(arranged(grid, 0)) == ["a", "b", "c"]
    assert names(arranged(grid, 1)) == ["c", "b", "a"] and names(arranged(grid, 1, reverse=True)) == ["b", "c", "a"]
    assert names(arranged(grid, 0, wanted="10 B")) == ["b"]
