"""How often a route is asked for again, with a clock of our own."""

import itertools

import pytest

from twinlog.client.routing.renewal_pace import PAUSE_MS_MAX, RenewalPace


def test_a_route_that_may_be_stale_is_asked_for_at_once_and_then_less_and_less_often():
    pace, now, asked = RenewalPace(), 0, []
    while now < 60_000:
        now += pace.reserve("T", now)
        asked.append(now)
        pace.asked("T", now, changed=False)
    assert asked[:6] == [0, 100, 300, 700, 1500, 2500]
    assert max(b - a for a, b in itertools.pairwise(asked)) == PAUSE_MS_MAX
    assert pace.reserve("U", now) <= 5, "each topic has a pace of its own"


@pytest.mark.parametrize(("changed", "later"), [(True, 100), (False, 20_000)])
def test_a_changed_route_or_a_quiet_while_start_over(changed, later):
    pace = RenewalPace()
    for now in (0, 100, 300, 700):
        pace.asked("T", now, changed=False)
    pace.asked("T", 1500, changed=changed)
    assert pace.reserve("T", 1500 + later) == 0


def test_questions_about_many_topics_follow_one_another():
    pace = RenewalPace()
    assert [pace.reserve(f"T{number}", 0) for number in range(1000)] == list(range(0, 5000, 5))
    assert pace.reserve("later", 60_000) == 0
