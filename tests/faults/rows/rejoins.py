"""Two logs that differ: the tail that the new master does not have is cut, and the process is killed in between."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.faults.group import TWINLOG, Group
from tests.faults.history import Outcome, read_of
from tests.faults.load import TOPIC, Load
from tests.faults.rows.clocks import SHIMS
from tests.interop.replica_pair import log_end, records, same_logs, until
from tests.interop.twinlog_servers import TWINLOG as COMMAND


def divergent_rejoin(home: Path, seed: int, side: str = TWINLOG, first: int = 1, last: int = 100) -> str:
    """An old master has a tail that its successor lacks; `replication rejoin` is killed after each of its steps.

    Started as a replica it either is refused, its tail untouched, until the command has run again; or it follows. The
    stale tail never returns: in the end both logs are equal, without one message of the tail. Seen to fail with a cut
    that does not overwrite the bytes behind the log's new end (`fill_zeros` left out).
    """
    with Group(home, side).running() as group:
        group.start_pair("ASYNC_MASTER", inSyncReplicas="1")
        load = Load(group.names.address, seed)
        _send(load, 100)
        group.logs_equal(60)
        group.knows_topic("replica")
        group.replica.kill()
        cut = log_end(group.replica.store)
        stale = Load(group.names.address, seed + 1, direct=group.master.address, first_number=100)
        _send(stale, 600)  # more than one segment
        group.master.kill()
        group.change_conf("master", brokerRole="SLAVE", brokerId="1")
        group.change_conf("replica", brokerRole="ASYNC_MASTER", brokerId="0")
        group.restart("replica")
        _send(load, 100)
        tail = {send.key for send in stale.history.sends if send.outcome is Outcome.ACKNOWLEDGED}
        shutil.copytree(group.master.store, home / "diverged")
        steps = refused = 0
        for step in range(first, last + 1):
            shutil.rmtree(group.master.store)
            shutil.copytree(home / "diverged", group.master.store)
            if rejoin(group, cut, kill_after=step):
                break
            steps += 1
            refused += _follows(group, cut)
            found = {read_of(each).key for each in records(group.master.store) if each.topic == TOPIC}
            assert not found & tail, f"{len(found & tail)} messages of the stale tail are back after step {step}"
            group.master.kill()
        verdict = group.judge(load, "replica")
    assert steps, "the command was never killed"
    assert not verdict.broken, f"{load.history}: {verdict}"
    return f"killed after each of {steps} steps, {len(tail)} stale messages never back, {refused} times cut once more"


def _follows(group: Group, cut: int) -> bool:
    """Start the old master as a replica; True when its tail had to be cut once more."""
    again = False
    group.restart("master")
    if log_end(group.master.store) != cut and not _is_equal(group):
        group.master.kill()
        rejoin(group, cut)
        group.restart("master")
        again = True
    until(lambda: _is_equal(group), "the old master follows", 60)
    return again


def _is_equal(group: Group) -> bool:
    stores = group.master.store, group.replica.store
    return log_end(stores[0]) == log_end(stores[1]) and same_logs(*stores)


def rejoin(group: Group, cut: int, kill_after: int = 0, name: str = "master") -> bool:
    """Run the command; False when it was killed."""
    path = os.pathsep.join([str(SHIMS), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "TWINLOG_TEST_KILL_AFTER": str(kill_after)}
    config = group.home / name / "broker.conf"
    command = [*COMMAND, "replication", "rejoin", "--cut", str(cut), "--config", str(config), "--yes"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -9), f"rejoin ended with {done.returncode}: {done.stdout} {done.stderr}"
    return done.returncode == 0


def _send(load: Load, count: int) -> None:
    with load.running():
        load.go_on(count)
