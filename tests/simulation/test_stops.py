"""A broker is killed after every single step of a failover, and starts again from what is durable."""

import pytest
from tests.simulation.group import Group, Shape
from tests.simulation.history import HistoryRun, newest_keys
from tests.simulation.many import simulate
from tests.simulation.mutants import NO_MUTANT
from tests.simulation.world import World

from twinlog.failover.records import Switch


def failover_and_switchover(kill_after: int = 0) -> int:
    """A first start, a lost master, its return, a planned switch; returns the number of steps."""
    world = World(seed=1)
    group = Group(world, Shape())
    run = HistoryRun(world, group, NO_MUTANT)
    group.network.late, group.etcd.stale, group.kill_after = 0.0, 0.0, kill_after
    run.begin()
    world.run_until(9_000)
    if (leader := newest_keys(group.etcd).leader) is not None:
        group.kill(leader.member)
        world.after(7_000, group.start, leader.member)
    world.run_until(18_000)
    run.wish(Switch(to=None, kind="switchover", epoch=newest_keys(group.etcd).epoch))
    world.run_until(24_000)
    run.end()
    return group.steps


STEPS = failover_and_switchover()


def test_the_scenario_has_a_first_start_a_failover_and_a_switchover():
    assert STEPS > 40


@pytest.mark.parametrize("part", range(4))
def test_a_kill_after_any_step_loses_nothing_and_the_group_goes_on(part):
    """The checker raises when something acknowledged is lost, or when nothing is acknowledged in the end."""
    for kill_after in range(1 + part, STEPS + 1, 4):
        failover_and_switchover(kill_after)


def test_the_row_of_the_soak_counts_its_histories(tmp_path):
    assert simulate(tmp_path, 3, "twinlog", rounds=2).startswith("2 histories from seed 3")
