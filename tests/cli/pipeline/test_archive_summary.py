"""What `twinlog pipeline archive` prints at its end."""

import pytest

pytest.importorskip("pyspark")

from twinlog.cli.pipeline.archive import _print_archived
from twinlog.spark.jobs.archive.job import ArchiveSummary
from twinlog.spark.jobs.archive.layout import TopicTotals


def shown(capsys, **more) -> str:
    _print_archived(ArchiveSummary(**{"target": "/lake", "format": "delta", "batches": 1, "topics": {}, **more}), False)
    return capsys.readouterr().out


def test_a_run_without_rows_says_whether_there_was_something_to_read(capsys):
    assert shown(capsys) == "/lake: nothing new\n"
    said = shown(capsys, unparsed=3, unparsed_target="/lake_unparsed")
    assert said.splitlines() == [
        "3 messages do not parse: they are in /lake_unparsed, with the reason",
        "/lake: no message parsed",
    ]


def test_topics_and_their_total_are_a_table(capsys):
    said = shown(capsys, topics={"Orders": TopicTotals(3000, 4, 34_621)})
    assert "Orders" in said
    assert "34,621" in said
