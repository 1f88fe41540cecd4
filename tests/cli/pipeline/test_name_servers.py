"""Each command of the pipeline names a cluster in the same way."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from twinlog.cli.pipeline.app import app

NOBODY = "127.0.0.1:1"
ASKING = {"archive": ["{home}/archive"], "audit": []}  # they ask before Spark is started
COMMANDS = (*ASKING, "sync", "restore", "lag")


def run(name, home, *more, **environment):
    arguments = [one.format(home=home) for one in ASKING.get(name, ())]
    done = CliRunner().invoke(app, [name, *arguments, *more], env={"NAMESRV_ADDR": None, **environment})
    return done.output


@pytest.mark.parametrize("name", COMMANDS)
def test_one_spelling_is_documented(tmp_path, name):
    shown = run(name, tmp_path, "--help")
    assert "--namesrvAddr" in shown
    assert "--nameServer" not in shown
    assert "No such option: --nonsense" in run(name, tmp_path, "--nameServer", NOBODY, "--nonsense")


@pytest.mark.parametrize("name", ASKING)
def test_both_spellings_are_the_same_option(tmp_path, name):
    for spelling in ("-n", "--namesrvAddr", "--nameServer"):
        assert f"no name server of {NOBODY} answers" in run(name, tmp_path, spelling, NOBODY)


@pytest.mark.parametrize("name", ASKING)
def test_the_variable_counts_where_no_name_server_is_given(tmp_path, name):
    assert f"no name server of {NOBODY} answers" in run(name, tmp_path, NAMESRV_ADDR=NOBODY)


def test_an_archive_of_a_store_does_not_mind_the_variable(tmp_path):
    said = run("archive", tmp_path, "--store", str(tmp_path / "none"), NAMESRV_ADDR=NOBODY)
    assert "there is no store directory" in said
