"""`twinlog store compare`: the exit status tells whether two stores are twins."""

import json
import shutil

import pytest
from tests.store.store_at import fill, open_store, write_log
from typer.testing import CliRunner

from twinlog.cli.store.app import store as command


@pytest.fixture
def twins(tmp_path):
    with open_store(tmp_path / "a") as store:
        places = fill(store, 30)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a" / "store", tmp_path / "b" / "store", places


def run(*arguments):
    return CliRunner().invoke(command, ["compare", *map(str, arguments)])


def test_twins_give_status_zero_and_the_range_that_is_equal(twins):
    one, other, places = twins
    result = run(one, other)
    assert result.exit_code == 0 and f"equal: {places[-1].end} bytes from 0 to {places[-1].end}" in result.output
    assert json.loads(run(one, other, "--json").output)["equal"]
    with open_store(one.parent) as store:
        fill(store, 1, start=30)
    assert "A is longer by" in run(one, other).output


def test_a_difference_gives_status_one_and_names_the_record(twins):
    one, other, places = twins
    write_log(other.parent, places[7].physical_offset + 90, b"\xff")
    result = run(one, other)
    assert result.exit_code == 1
    assert f"different at byte {places[7].physical_offset + 90}: A has record TopicA/1/3" in result.output


def test_a_directory_that_is_not_a_store_gives_status_two(twins, tmp_path):
    result = run(twins[0], tmp_path / "missing")
    assert result.exit_code == 2 and "holds no commit log" in result.output
