"""One broker's wall clock is set an hour forward, then an hour back, while it runs."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from tests.faults.group import TWINLOG, Group, Place
from tests.faults.load import Load
from tests.interop.replica_pair import pull_everything, until

from twinlog.client import Outgoing
from twinlog.client.sync import Producer

SHIMS = Path(__file__).parent.parent / "shims"
HOUR_S = 3600
DELAY_S = 2  # delay level 2


def wrong_clock(home: Path, seed: int, side: str = TWINLOG, rounds: int = 3, settle_s: float = 5.0) -> str:
    """The clock of the master, then that of the replica, jumps by an hour in both directions, under load.

    No delayed message comes early, sends go on, the replica's connection is the same as before, and all is there.
    Seen to fail with a SteadyClock that returns the wall clock.
    """
    home.mkdir(parents=True, exist_ok=True)
    clocks = {name: home / f"{name}.clock" for name in ("master", "replica")}
    for path in clocks.values():
        path.write_text("0")
    path = os.pathsep.join([str(SHIMS), os.environ.get("PYTHONPATH", "")])
    places = {name: Place(env={"PYTHONPATH": path, "TWINLOG_TEST_CLOCK": str(file)}) for name, file in clocks.items()}
    dice, due = random.Random(seed), dict[bytes, float]()
    with Group(home, side, places).running() as group, Producer(group.names.address, "PG_CLOCK") as producer:
        group.start_pair("SYNC_MASTER")
        load = Load(group.names.address, seed)
        peers = _peers(group)
        with load.running():
            for _ in range(rounds):
                for victim, hours in (("master", 1), ("master", -1), ("replica", 1), ("replica", -1)):
                    for _ in range(5):
                        body = b"late %d" % len(due)
                        due[body] = time.monotonic() + DELAY_S
                        producer.send(Outgoing("Late", body, delay_level=2), timeout_ms=10_000)
                    _set(clocks[victim], hours * HOUR_S)
                    load.history.fault(time.monotonic(), f"clock of {victim} {hours:+d} h")
                    _none_early(group, due, time.monotonic() + dice.uniform(0.5, 1.0))
                    time.sleep(settle_s)
                    load.go_on(20)
                    _set(clocks[victim], 0)
                    load.go_on(20)
        until(lambda: len(_arrived(group)) >= len(due), "all delayed messages have arrived", 60)
        after = _peers(group)
        group.logs_equal(60)
        verdict = group.judge(load)
        said = [line for line in group.master.output.read_text().splitlines() if "replica has connected" in line]
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert peers == after, f"the replica had connection {peers}, then {after}: {len(said)} connections"
    return f"{verdict}; {len(due)} delayed messages, none early; the replica's connection stayed"


def _set(path: Path, seconds: int) -> None:
    new = path.with_suffix(".new")
    new.write_text(str(seconds))
    new.rename(path)


def _none_early(group: Group, due: dict[bytes, float], until_: float) -> None:
    while (now := time.monotonic()) < until_:
        early = [body for body in _arrived(group) if due[body] > time.monotonic()]
        assert not early, f"{early} came {due[early[0]] - now:.1f} s early"
        time.sleep(0.1)


def _arrived(group: Group) -> list[bytes]:
    return [message.body for message in pull_everything(group.master.address, "Late", 4)]


def _peers(group: Group) -> list[str]:
    return [one["peer"] for one in group.replication("master").get("replicas", [])]
