import io
import json
import re

import pytest

from twinlog.cli.shared.report import Report, Table, joined, pairs, plain, show, table, text_report, when
from twinlog.wire.bodies import MessageQueue, TopicConfig
from twinlog.wire.codes import version_name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(report, *, as_json: bool = False, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    show(report, out, as_json=as_json)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def test_in_a_pipe_a_table_is_aligned_columns_with_mqadmins_headings():
    report = table("Name,Count", [("a", 1), ("longer", 20)], lines=["Total: 21"])
    assert shown(report) == "#Name   #Count\na       1\nlonger  20\nTotal: 21\n"


def test_on_a_terminal_numbers_are_aligned_to_the_right():
    text = shown(table("Name,Count,Is", [("a", 1, True), ("b", 20, False)]), out=Terminal())
    assert [line.rstrip() for line in text.splitlines()] == [
        "Name  Count  Is",
        "a         1  true",
        "b        20  false",
    ]


def test_a_terminal_says_so_when_a_table_has_no_rows():
    empty = table("Name,Count", [])
    assert [line.strip() for line in shown(empty, out=Terminal()).splitlines()] == ["Name  Count", "none"]
    assert shown(empty) == "#Name  #Count\n", "programs that read mqadmin's output are not surprised"


WIDE = Table(["Name", "Where", "Size"], [("n" * 30, "w" * 30, 12345)], "title", ["note"], ["Where"])


@pytest.mark.parametrize(("columns", "has_where"), [("80", True), ("60", False)])
def test_a_terminal_leaves_out_the_spare_columns_that_do_not_fit_and_names_them(monkeypatch, columns, has_where):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(Report([WIDE]), out=Terminal())
    assert ("w" * 30 in text) is has_where and "12345" in text
    assert ("columns that do not fit here: Where" in text) is not has_where
    assert text.splitlines()[0] == "title" and text.splitlines()[3].rstrip() == "  note"


def test_a_terminal_may_have_tables_of_its_own():
    report = Report([table("Script", [(1,)]).tables[0]], screen=table("Person", [(2,)]).tables)
    assert "Script" in shown(report) and "Person" not in shown(report)
    assert "Person" in shown(report, out=Terminal()) and "Script" not in shown(report, out=Terminal())


def test_text_that_looks_like_markup_is_shown_as_it_is():
    assert "[red]" in shown(table("Name", [("[red]",)]), out=Terminal())


def test_for_programs_rows_are_objects():
    report = table("Name,Count", [("a", 1)])
    assert json.loads(shown(report, as_json=True)) == [{"Name": "a", "Count": 1}]
    assert json.loads(shown(text_report("done"), as_json=True)) == ["done"]
    assert json.loads(shown(pairs({"k": "v"}), as_json=True)) == {"k": "v"}


def test_several_tables_keep_their_titles_for_programs():
    report = joined([table("A", [(1,)], title="one"), table("B", [(2,)], title="two")])
    assert json.loads(shown(report, as_json=True)) == [{"title": "one", "rows": [[1]]}, {"title": "two", "rows": [[2]]}]


def test_structures_and_queue_keys_become_plain_values():
    assert plain(TopicConfig(topic_name="T"))["readQueueNums"] == 16
    assert plain({MessageQueue("T", "b", 1): 5}) == {"T/b/1": 5}


def test_a_moment_has_milliseconds_and_no_moment_is_empty():
    assert when(1_700_000_000_123).endswith(",123")
    assert when(0) == when(-1) == when(None) == ""


def test_version_numbers_have_names_from_4_0_0_on():
    names = {213: "V4_0_0", 401: "V4_9_4", 407: "V4_9_7", 413: "V5_0_0", 475: "V5_3_1", 479: "V5_3_3", 513: "V5_5_0"}
    assert {number: version_name(number) for number in names} == names
    assert version_name(478) == "V5_3_3_SNAPSHOT"
    assert version_name(63) == "63"
