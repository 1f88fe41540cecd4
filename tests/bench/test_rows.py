"""Medians, ratios, noise and goals."""

import pytest
from bench.rows import Row, console, print_table


def row(goal: str = "", *, higher: bool = True, ours: list[float], java: list[float]) -> Row:
    return Row("sends", "messages/s", goal, higher, ours, java)


def test_a_ratio_above_one_is_better_whatever_the_unit():
    assert row(ours=[1, 300, 2000], java=[100, 150, 1]).ratio == 3
    assert row(ours=[5, 10, 20], java=[20, 30, 40], higher=False).ratio == 3
    assert row(ours=[1], java=[]).ratio is None
    assert row(ours=[0], java=[0]).ratio is None


def test_noise_is_java_against_java_round_by_round():
    assert row(ours=[], java=[100, 90, 100, 90, 100]).noise == 0.9
    assert row(ours=[], java=[100]).noise is None


@pytest.mark.parametrize(
    ("goal", "ours", "java", "met"),
    [
        (">= 1.5", 150, 100, True),
        (">= 1.5", 149, 100, False),
        (">= 1.5", 150, None, None),
        ("<= 100 MB", 100, 400, True),
        ("<= 100 MB", 101, 4000, False),
        ("<= 100 MB", 99, None, True),
        (">= 1 GB/s", 1.9, 6.2, True),
        (">= 1 GB/s", 0.9, 0.1, False),
        ("flat", 1, 1, None),
        ("", 1, 1, None),
    ],
)
def test_a_goal_is_about_the_ratio_or_about_our_own_figure(goal, ours, java, met):
    assert row(goal, ours=[ours], java=[] if java is None else [java]).met is met


def test_a_ratio_of_nothing_misses_its_goal():
    assert row(">= 1", ours=[0], java=[5]).met is False


def test_the_table_marks_what_was_missed():
    rows = [row(">= 1.5", ours=[100], java=[100]), row(">= 1.5", ours=[200], java=[100])]
    with console.capture() as printed:
        print_table(rows)
    text = printed.get()
    assert text.count("missed") == 1
    assert "1 of 2 goals are met" in text
