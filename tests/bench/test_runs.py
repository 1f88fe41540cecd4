"""A run of the bench: which parts it takes, and that a broken one is not passed over."""

import argparse
import json
import subprocess
import sys

import pytest
from bench.connections import LoadFailed
from bench.java_client import SCENES, JavaClient
from bench.rows import Row

from bench import __main__ as bench


def given(**words) -> argparse.Namespace:
    return argparse.Namespace(**{"only": None, "shape": None, "scene": None, "quick": False, **words})


def test_a_run_has_all_parts_and_a_quick_one_says_what_it_leaves_out():
    assert bench.parts_of(given()) == list(bench.PARTS)
    quick = bench.parts_of(given(quick=True))
    assert set(quick) | set(bench.NOT_QUICK) == set(bench.PARTS)
    assert {"shapes", "sync", "tls"} <= set(quick)


def test_a_shape_or_a_scene_chooses_its_part():
    assert bench.parts_of(given(shape=["oneway"])) == ["shapes"]
    assert bench.parts_of(given(scene=["push"], quick=True)) == ["java-client"]
    assert bench.parts_of(given(only=["pulls"], shape=["oneway"])) == ["pulls"]


def test_every_part_can_be_measured():
    pytest.importorskip("pyspark")
    assert set(bench.measures_of(given())) == set(bench.PARTS)


def java(prints: str) -> JavaClient:
    """A client that prints the same to every line."""
    program = f"import sys\nfor line in sys.stdin: print({prints!r}, flush=True)"
    words = [sys.executable, "-c", program]
    return JavaClient(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


def test_the_java_clients_answer_is_its_line_of_json():
    assert java('log4j: hello\n{"count":5,"seconds":2.5}').run(["sync"]) == {"count": 5, "seconds": 2.5}


@pytest.mark.parametrize("prints", ['{"error":"a send has status FLUSH_DISK_TIMEOUT"}', '{"error":""}'])
def test_an_error_of_the_java_client_fails_the_run(prints):
    with pytest.raises(LoadFailed):
        java(prints).run(["sync"])


def test_a_java_client_that_has_ended_fails_the_run():
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with pytest.raises(LoadFailed, match="the client ended"):
        JavaClient(process).run(["sync"])


def test_a_part_that_fails_ends_the_run_with_an_error_after_the_others(monkeypatch, tmp_path, capsys):
    def broken(folder, options):
        raise LoadFailed("no answer")

    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench.signal, "signal", lambda *words: None)
    monkeypatch.setattr(bench, "measures_of", lambda given: {"pulls": broken, "start": lambda *words: []})
    with pytest.raises(SystemExit, match="failed: pulls"):
        bench.main(["--quick", "--only", "pulls", "--only", "start"])
    bench.main(["--rounds", "1", "--only", "start"])
    assert not (tmp_path / "latest.json").exists()  # a shortened run is not a measurement
    bench.main(["--only", "start"])
    assert (tmp_path / "latest.json").exists()


def test_every_scene_has_a_goal():
    assert all(scene.goal >= 1 for scene in SCENES.values())


def test_the_newest_figures_are_of_the_newest_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    options = bench.Options(1, 1, 1, 1, 1, 1, (1,), 1, 1, quick=False, keep=True)

    def kept(rows: dict[str, float], partly: tuple[str, ...] = ()) -> dict[str, list[float]]:
        made = [Row(name, "s", "", twinlog=[figure], part=name.split()[0]) for name, figure in rows.items()]
        bench.save(made, options, partly)
        return {row["name"]: row["twinlog"] for row in json.loads((tmp_path / "latest.json").read_text())["rows"]}

    assert kept({"shapes a": 1, "shapes b": 2, "pulls": 3}) == {"shapes a": [1], "shapes b": [2], "pulls": [3]}
    assert kept({"shapes a": 4}, ("shapes",)) == {"shapes a": [4], "shapes b": [2], "pulls": [3]}
    assert kept({"shapes c": 5}) == {"pulls": [3], "shapes c": [5]}
