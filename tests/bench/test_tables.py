"""The tables of the documents are made from the newest figures."""

import json

import pytest
from bench.tables import LATEST, PAGES, table, written

ROWS = json.loads(LATEST.read_text())["rows"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_up_to_date(page):
    text = page.read_text()
    assert written(text, ROWS) == text, "run python -m bench.tables"


def test_readme_has_at_most_ten_rows_with_the_worst_shape_beside_the_best():
    lines = table("readme", ROWS).splitlines()[2:]
    assert len(lines) <= 11
    assert any("sends, best" in line for line in lines) and any("sends, worst" in line for line in lines)


def row(name: str, ratio: float, **members) -> dict:
    figures = {"twinlog": [ratio * 1000, ratio * 3000, ratio * 2000], "java": [2000.0]}
    common = {"unit": "messages/s", "part": "shapes", "goal": ">= 1", "java_against_java": 0.98, "met": ratio >= 1}
    return {"name": name, "ratio": ratio, **figures, **common, **members}


def test_a_table_has_medians_ratios_and_what_was_missed():
    rows = [row("sends, a", 0.5), row("sends, b", 2.0), row("other", 1.0, part="pulls")]
    assert table("shapes", rows).splitlines()[2:] == [
        "| sends, a | 1,000 /s | 2,000 /s | 0.50x | **missed**: >= 1 | 0.98x |",
        "| sends, b | 4,000 /s | 2,000 /s | 2.00x | >= 1 | 0.98x |",
    ]
    assert table("readme", rows).splitlines()[2:] == [
        "| sends, best: b | 4,000 /s | 2,000 /s | 2.00x |",
        "| sends, worst: a | 1,000 /s | 2,000 /s | 0.50x |",
    ]
