import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import Entry, format_properties, parse_properties, replace_values


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a: b", "a", "b"),
        ("a b", "a", "b"),
        ("  a\t=\tb", "a", "b"),
        ("a==b", "a", "=b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a = b  ", "a", "b  "),
        (r"a\=b=c", "a=b", "c"),
        (r"a=\tb\n", "a", "\tb\n"),
        (r"a=\u4e2d", "a", "中"),
        (r"a=\q", "a", "q"),
        (r"a=c:\\dir", "a", "c:\\dir"),
    ],
)
def test_a_line_is_read_as_java_reads_it(text, key, value):
    assert parse_properties(text) == [Entry(key, value, 1, 1)]


def test_comments_and_blank_lines_count_as_lines_but_give_no_entry():
    text = "# one\n\n  ! two\r\nlistenPort=1\rbrokerName=b"
    assert parse_properties(text) == [Entry("listenPort", "1", 4, 4), Entry("brokerName", "b", 5, 5)]


def test_a_backslash_at_the_end_joins_the_next_line_without_its_indent():
    assert parse_properties("a=1,\\\n   2,\\\n\t3\nb=4") == [Entry("a", "1,2,3", 1, 3), Entry("b", "4", 4, 4)]


def test_a_comment_sign_inside_a_continued_value_is_part_of_the_value():
    assert parse_properties("a=1\\\n#2") == [Entry("a", "1#2", 1, 2)]


def test_an_even_number_of_backslashes_ends_the_line():
    assert parse_properties("a=1\\\\\nb=2") == [Entry("a", "1\\", 1, 1), Entry("b", "2", 2, 2)]


def test_a_broken_unicode_escape_names_its_place():
    with pytest.raises(SettingsError, match=r"broker.conf:2: .*four hex digits"):
        parse_properties("a=1\nb=\\u12", source="broker.conf")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_formatted_reads_back(values):
    assert {entry.key: entry.value for entry in parse_properties(format_properties(values))} == values


@given(st.text())
def test_any_text_gives_entries_or_a_settings_error(text):
    with contextlib.suppress(SettingsError):
        parse_properties(text)


def test_replacing_a_value_keeps_comments_and_order_and_appends_new_keys():
    text = "# mine\na=1\n\nb=2,\\\n  3\na=4\n"
    assert replace_values(text, {"a": "9", "b": "8", "c": "7"}) == "# mine\n\nb=8\na=9\nc=7\n"


def test_replacing_in_an_empty_text_gives_just_the_keys():
    assert replace_values("", {"a": "1"}) == "a=1\n"


@given(st.dictionaries(st.text(min_size=1), st.text()), st.dictionaries(st.text(min_size=1), st.text()))
def test_replaced_values_win_and_all_others_stay(old, new):
    text = replace_values(format_properties(old), new)
    assert {entry.key: entry.value for entry in parse_properties(text)} == {**old, **new}
