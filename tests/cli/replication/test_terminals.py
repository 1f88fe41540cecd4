"""What people see of a pair whose replica is refused, on terminals of 80 and of 120 columns."""

import asyncio

import pytest
from tests.cli.terminals import in_terminal
from tests.replication.cluster import running_cluster, send_all, twins, until

BODIES = [b"message %d" % number for number in range(50)]


@pytest.fixture
async def names(tmp_path):
    """A name server with two pairs: one is well, the other one's replica has a log of its own."""
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        await send_all(await cluster.start("replica", brokerName="elsewhere"), BODIES[:1])
        await cluster.stop("replica")
        await send_all(master, BODIES)
        replica = await cluster.start("replica", "SLAVE", 1)
        await until(lambda: replica.replication.replica.status.state == "refused", "its log is another one")
        other = await cluster.start("other-master", "SYNC_MASTER", brokerName="broker-b")
        await twins(other, await cluster.start("other-replica", "SLAVE", 1, brokerName="broker-b"))
        await until(lambda: len(registered(cluster, "broker-b")) == len(registered(cluster, "broker-a")) == 2, "all")
        yield cluster.names


def registered(cluster, name):
    found = cluster.name_server.context.table.brokers.get(name)
    return found.broker_addrs if found is not None else {}


async def test_status_and_cluster_list_fit_and_are_short(names):
    for columns in (80, 120):
        shown = await asyncio.to_thread(in_terminal, ["replication", "status", "-n", names], columns=columns)
        assert shown.status == 0 and max(map(len, shown.lines)) <= columns, shown.lines
        assert len(shown.lines) <= 24, "two pairs fit on one screen"
        text = " ".join(line.strip() for line in shown.lines)
        assert "refused" in text and "rejoin --store" in text and "--metadata shows" in text
        assert ("columns that do not fit here: Kind" in text) is (columns == 80)
        assert [line for line in shown.lines if line.lstrip().startswith("1 ")] != [], "one line a replica"
        shown = await asyncio.to_thread(in_terminal, ["admin", "clusterList", "-n", names], columns=columns)
        assert shown.status == 0 and max(map(len, shown.lines)) <= columns, shown.lines
        assert len(shown.lines) <= 8 and "4 brokers, 2 of 2 masters" in shown.lines[0]
        assert sum("twinlog 0." in line for line in shown.lines) == 4


async def test_a_watch_is_redrawn_in_place(names):
    words = ["replication", "status", "-n", names, "--watch", "--interval", "0.1"]

    def has_redrawn(text: str) -> bool:
        return text.count("Ctrl-C ends this") >= 3

    shown = await asyncio.to_thread(in_terminal, words, rows=40, stop_when=has_redrawn)
    assert shown.status == 130
    first, second, *_ = shown.raw.split("Ctrl-C ends this")
    assert second.count("\x1b[1A") == first.count("\n"), "the next picture begins where the first one began"
