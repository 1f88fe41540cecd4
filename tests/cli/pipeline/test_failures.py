"""A pipeline command reports a failure of Spark in one line."""

import pytest
import typer

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from twinlog.cli.pipeline import running
from twinlog.cli.pipeline.running import cause_of, report_failures
from twinlog.cli.pipeline.session_options import with_session_options
from twinlog.spark import session
from twinlog.spark.errors import BadOption

STAGE = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 10.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 10.0 (TID 7) (localhost executor driver): "
)
PLANNING = (
    "[STREAM_FAILED] Query [id = 2] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed "
    "when Python streaming data source perform latestOffset: "
)
JAVA = "\tat org.apache.spark.Something(Some.scala:1)\nCaused by: java.io.EOFException\n\t... 21 more"


@pytest.mark.parametrize(
    ("report", "start"),
    [
        ("Traceback\ntwinlog.spark.errors.DataLoss: topic T: gone; do this\n at org", "topic T: gone; do this"),
        (f"{PLANNING}twinlog.spark.errors.DataLoss: topic T: gone; do this", "topic T: gone; do this"),
        (
            f"An error occurred while calling o180.parquet.\n: {STAGE}java.io.IOException: Mkdirs failed\n{JAVA}",
            "java.io.IOException: Mkdirs failed; --verbose",
        ),
        (
            f": {STAGE}org.apache.spark.SparkException: Python worker exited\n{JAVA}",
            "org.apache.spark.SparkException: Py",
        ),
        (
            "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: heap\n",
            "java.lang.OutOfMemoryError: heap;",
        ),
        ("[PATH_NOT_FOUND] Path does not exist", "[PATH_NOT_FOUND] Path does not exist;"),
        ("", "RuntimeError;"),
    ],
)
def test_the_cause_is_one_line(report, start):
    found = cause_of(RuntimeError(report))
    assert found.startswith(start) and "\n" not in found


def test_what_java_throws_ends_the_command_without_a_traceback(capsys):
    with pytest.raises(typer.Exit) as ended, report_failures():
        raise Py4JError(f"An error occurred while calling o180.parquet.\n: {STAGE}java.io.IOException: disk\n{JAVA}")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("twinlog: java.io.IOException: disk; ")


def test_verbose_shows_the_traceback_before_the_reason(capsys):
    def command(master: str | None = None) -> None:
        with report_failures():
            raise BadOption("no such thing: do that")

    run = with_session_options(command)
    for verbose in (False, True):
        with pytest.raises(typer.Exit):
            run(ui=False, verbose=verbose)
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1] == "twinlog: no such thing: do that"
        assert (len(lines) > 1, lines[0].startswith("Traceback")) == (verbose, verbose)


def test_the_pages_of_spark_and_its_log_are_switched_on_by_one_option_each(monkeypatch):
    seen = []

    class Started(Exception):
        pass

    def start(name, *, master, conf):
        seen.append(conf)
        raise Started

    def command(master: str | None = None, conf: list[str] | None = None) -> None:
        with running.spark_job("job", master, conf):
            pass

    monkeypatch.setattr(session, "start", start)
    for chosen in ({"ui": False, "verbose": False}, {"ui": True, "verbose": True}):
        with pytest.raises(Started):
            with_session_options(command)(conf=["a=1"], **chosen)
    assert seen == [
        {"spark.log.level": "FATAL", "a": "1"},
        {"spark.log.level": "WARN", "spark.ui.enabled": "true", "a": "1"},
    ]


def test_a_command_without_spark_has_no_options_of_spark():
    from twinlog.cli.pipeline.app import app

    pipeline = typer.main.get_command(app)
    words = {name: {word for one in pipeline.get_command(None, name).params for word in one.opts} for name in NAMES}  # type: ignore[attr-defined]
    assert ["--ui" in words[name] for name in NAMES] == ["--verbose" in words[name] for name in NAMES]
    assert ["--ui" in words[name] for name in NAMES] == [True, True, False, False, False]


NAMES = ("audit", "archive", "versions", "expire", "script")
