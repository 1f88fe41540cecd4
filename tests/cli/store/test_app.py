"""`twinlog store`: the exit status tells whether a store is sound."""

import json
import subprocess
import sys

import pytest
from tests.store.store_at import fill, open_store, write_log
from typer.testing import CliRunner

from twinlog.cli.store.app import store as command


@pytest.fixture
def filled(tmp_path):
    with open_store(tmp_path) as store:
        places = fill(store, 30)
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=100\nmaxIndexNum=400\n")
    return tmp_path / "store", conf, places


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_sound_store_verifies_with_status_zero(filled):
    root, conf, _ = filled
    result = run("verify", root, "-c", conf)
    assert result.exit_code == 0
    assert "30 records" in result.output and "60 index entries: sound" in result.output
    assert json.loads(run("verify", root, "--json").output)["ok"]


def test_damage_gives_status_one_and_names_the_place(filled):
    root, conf, places = filled
    write_log(root.parent, places[3].physical_offset + 89, b"\xff")
    result = run("verify", root, "-c", conf)
    assert result.exit_code == 1 and f"problem: log {places[3].physical_offset} to" in result.output
    assert run("dump", root).exit_code == 1


def test_a_directory_that_is_not_a_store_gives_status_two(tmp_path):
    result = run("verify", tmp_path)
    assert result.exit_code == 2 and "holds no commit log" in result.output
    assert run("dump", tmp_path / "missing").exit_code == 2


def test_dump_prints_records_queues_index_and_state(filled):
    root, conf, _ = filled
    rows = [json.loads(line) for line in run("dump", root, "--json", "--body").output.splitlines()]
    assert len(rows) == 31 and rows[7]["body"] == "body 7" and rows[-1]["end"]
    assert 'topic="TopicA"' in run("dump", root, "--limit", "1").output
    assert json.loads(run("dump", root, "--part", "queues", "--json").output.splitlines()[0])["max"] == 15
    assert json.loads(run("dump", root, "--part", "index", "--json", "-c", conf).output)["entries"] == 60
    assert json.loads(run("dump", root, "--part", "state", "--json").output)["abort_marker"] is False


def test_the_command_is_reachable_from_the_command_line(filled):
    done = subprocess.run(
        [sys.executable, "-m", "twinlog.cli.main", "store", "verify", str(filled[0])], capture_output=True, timeout=50
    )
    assert done.returncode == 0 and b"sound" in done.stdout


def test_output_that_cannot_be_written_is_one_line(filled):
    command = [sys.executable, "-m", "twinlog.cli.main", "store", "dump", str(filled[0])]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == (
        "twinlog: [Errno 28] No space left on device; check the files named and where the output goes\n"
    )
