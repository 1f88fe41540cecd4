"""`tools/soak.py` goes on where a run was interrupted."""

import json
import sys

import pytest
from tests.faults.rows.table import Row
from tools import soak


@pytest.fixture
def played(monkeypatch):
    """The rows that were run; the second one fails."""
    names = []

    def row(name, fails=False):
        def run(home, seed, side):
            names.append(name)
            assert not fails, "on purpose"
            return "numbers"

        return Row(name, 1.5, run)

    monkeypatch.setattr(soak, "ROWS", [row("one"), row("two", fails=True), row("three")])
    return names


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["soak", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        soak.main()
    return ended.value.code


def test_a_run_that_is_resumed_repeats_only_what_failed_or_was_not_reached(monkeypatch, tmp_path, played, capsys):
    file = tmp_path / "soak.json"
    assert run(monkeypatch, "--row", "t", "--json", file)  # "two" and "three"
    assert played == ["two", "three"]
    assert run(monkeypatch, "--json", file, "--resume")
    assert played[2:] == ["one", "two"]
    assert "2 rows, about 3 minutes" in capsys.readouterr().out
    results = {one["row"]: one["result"] for one in json.loads(file.read_text())}
    assert results == {"three": "held", "one": "held", "two": "FAILED"}


def test_the_plan_has_the_time_of_each_row_and_of_all(monkeypatch, played, capsys):
    monkeypatch.setattr(sys, "argv", ["soak", "--plan"])
    soak.main()
    assert not played
    assert "1.5 min  two, twinlog" in (out := capsys.readouterr().out) and "3 rows, about 4.5 minutes" in out


def test_resume_needs_the_file_of_the_run_before(monkeypatch, played):
    assert run(monkeypatch, "--resume") == 2
