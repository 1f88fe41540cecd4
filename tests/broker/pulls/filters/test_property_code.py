"""The code made of an expression selects, on properties in text form, what the expression's definition selects."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.broker.pulls.filters import property_code
from twinlog.broker.pulls.filters.sql92 import FilterSyntaxError, compile_sql92
from twinlog.wire.properties import decode_properties, encode_properties

GOLDEN = json.loads((Path(__file__).parent / "sql92_golden.json").read_text())


def check(expression: str, text: bytes) -> None:
    wanted = compile_sql92(expression)
    assert wanted.matches_text(text) is wanted.matches(decode_properties(text)), (expression, text)


def test_every_golden_expression_selects_the_same_from_bytes():
    compared = 0
    for verdict, expression, properties in GOLDEN:
        if verdict != "X":
            check(expression, encode_properties(properties))
            compared += 1
    assert compared > 1_000


NAMES = st.sampled_from(["a", "b", "aa", "ba", "_x"])
NUMBERS = st.sampled_from(
    ["0", "5", "-5", "- -7", "+3", "2147483647", "2147483648", "9223372036854775807", "1.5", "-2e3", "5L"]
)
TEXTS = st.sampled_from(["'x'", "'5'", "''", "'it''s'", "'\ufffd'", "'\u00e9'", "'\x01b'"])
OPERANDS = NAMES | NUMBERS | TEXTS | st.sampled_from(["TRUE", "FALSE", "NULL"])
SIGNS = st.sampled_from(["=", "<>", ">", ">=", "<", "<="])


def words(*parts: object) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(p) if isinstance(p, str) else p for p in parts)).map(" ".join)  # type: ignore[arg-type]


NOT = st.sampled_from(["", "NOT"])
TESTS = (
    words(OPERANDS, SIGNS, OPERANDS)
    | words(NAMES, SIGNS, NUMBERS | TEXTS)
    | words(NAMES, NOT, "BETWEEN", NUMBERS | NAMES, "AND", NUMBERS | NAMES)
    | words(NAMES, NOT, "IN (", TEXTS, ",", TEXTS, ")")
    | words(NAMES, NOT, st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), TEXTS)
    | words(NAMES, "IS", NOT, "NULL")
    | NAMES
)
EXPRESSIONS = st.recursive(
    TESTS,
    lambda inner: (
        words("(", inner, ") AND (", inner, ")")
        | words("(", inner, ") OR (", inner, ")")
        | words("(", inner, ") OR (", inner, ") OR (", inner, ")")
        | words("NOT (", inner, ")")
        | words("(", inner, ")", SIGNS, "(", inner, ")")
        | words("(", inner, ") IS", NOT, "NULL")
    ),
    max_leaves=8,
)
USUAL = b",5,-5,+3,05,x,it's,1.5,1e3,2147483648,99999999999999999999, 5,true".split(b",")
RARE = [b"\xc3\xa9", b"\xff", b"\xef\xbf\xbd", b"\xd9\xa5", b"y\x01z", b"a\x015", b"5\xe2"]
VALUES = st.sampled_from(USUAL + RARE)
PAIRS = st.tuples(st.sampled_from([b"a", b"b", b"aa", b"ba", b"_x", b"c", b"", b"\xffa", b"x\xc3"]), VALUES)
PROPERTIES = st.lists(PAIRS.map(b"\x01".join) | VALUES, max_size=6).map(b"\x02".join)


@settings(max_examples=600, deadline=None)
@given(EXPRESSIONS, st.lists(PROPERTIES, min_size=1, max_size=8), st.sampled_from([b"", b"\x02"]))
def test_any_expression_selects_the_same_from_any_bytes(expression, texts, end):
    try:
        compile_sql92(expression)
    except FilterSyntaxError:
        return
    for text in texts:
        check(expression, text + end)


@given(st.binary(max_size=30))
def test_any_bytes_have_a_verdict(text):
    for expression in ("a = 'x'", "a > 5 OR b IS NULL", "NOT (a BETWEEN 1 AND b)"):
        check(expression, text)


@pytest.mark.parametrize(
    "expression",
    [
        " OR ".join(f"a = '{number}'" for number in range(1_000)),
        "(" * 60 + "a = '3'" + " OR b = '1')" * 60,
        "(" * 40 + "a = '3'" + " AND b = 'x') OR a = '4')" * 20,
    ],
)
def test_a_long_or_deep_expression_is_not_made_code_of(expression, monkeypatch):
    monkeypatch.setattr(property_code, "_Writer", None)
    compile_sql92.cache_clear()
    wanted = compile_sql92(expression)
    assert wanted.matches_text(b"a\x013\x02b\x01x\x02")
    assert not wanted.matches_text(b"a\x01no\x02")


def test_no_text_of_an_expression_becomes_code(monkeypatch):
    sources = []
    monkeypatch.setattr(
        property_code, "compile", lambda *args: sources.append(args[0]) or compile(*args), raising=False
    )
    compile_sql92.cache_clear()
    compile_sql92("marker = 'marker' AND marker IN ('marker') OR marker > 123456789 OR marker STARTSWITH 'marker'")
    assert len(sources) == 1
    assert "marker" not in sources[0]
    assert "123456789" not in sources[0]
