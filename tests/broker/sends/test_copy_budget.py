"""How much a host may make the broker copy."""

from __future__ import annotations

from twinlog.broker.sends.copy_budget import HOSTS_MAX, CopyBudget


def test_a_budget_survives_a_clock_that_goes_back_and_very_many_hosts():
    budget = CopyBudget()
    assert budget.is_open("h", 10, 1_000)
    budget.pay("h", 45)
    assert not budget.is_open("h", 10, 500)
    assert budget.is_open("h", 10, 1_100)
    assert budget.is_open("h", 0, 0)
    for number in range(HOSTS_MAX + 5):
        budget.is_open(str(number), 10, 0)
    assert len(budget._budgets) == HOSTS_MAX
