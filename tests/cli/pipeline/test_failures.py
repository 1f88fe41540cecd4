"""A pipeline command reports a failure of Spark in one line."""

import pytest
import typer

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from twinlog.cli.pipeline.running import cause_of, report_failures

STAGE = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 10.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 10.0 (TID 7) (localhost executor driver): "
)
JAVA = "\tat org.apache.spark.Something(Some.scala:1)\nCaused by: java.io.EOFException\n\t... 21 more"


@pytest.mark.parametrize(
    ("report", "start"),
    [
        ("Traceback\ntwinlog.spark.errors.DataLoss: topic T: gone; do this\n at org", "topic T: gone; do this"),
        (
            f"An error occurred while calling o180.parquet.\n: {STAGE}java.io.IOException: Mkdirs failed\n{JAVA}",
            "java.io.IOException: Mkdirs failed; `--conf",
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
