"""SQL92 filters select exactly what Java's own classes select, and no expression can hurt the broker."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.pulls.filters.java_compare import UnequalKinds, java_double
from twinlog.broker.pulls.filters.sql92 import EXPRESSION_CHARS_MAX, FilterSyntaxError, compile_sql92

GOLDEN = json.loads((Path(__file__).parent / "sql92_golden.json").read_text())


def judge(expression: str, properties: dict[str, str]) -> str:
    """T, F, N (unknown), E (cannot be evaluated) or X (does not parse), as Sql92Golden.java says it."""
    try:
        wanted = compile_sql92(expression)
    except FilterSyntaxError:
        return "X"
    try:
        return {True: "T", False: "F", None: "N"}[wanted.evaluate(properties)]
    except UnequalKinds:
        return "E"


def test_every_verdict_is_the_real_brokers():
    different = [(want, got, text, ps) for want, text, ps in GOLDEN if (got := judge(text, ps)) != want]
    assert different == []
    assert {want for want, _, _ in GOLDEN} == set("TFNEX")


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("price > 10 AND region = 'eu'", True),
        ("price BETWEEN 10 AND 12.5", True),
        ("region IN ('us', 'eu') AND coupon IS NULL", True),
        ("NOT (price > 10)", False),
        ("coupon = 'x' OR price = 12", True),
        ("coupon <> 'x'", False),  # unknown is not true
        ("region STARTSWITH 'e' and region not contains 'x'", True),
        ("price > region", False),  # cannot be evaluated
    ],
)
def test_only_true_selects(expression, selected):
    assert compile_sql92(expression).matches({"price": "12", "region": "eu"}) is selected


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5_000 + "a = 1" + ")" * 5_000,
        "NOT " * 5_000 + "a",
        "- " * 5_000 + "1 = 1",
        "+" * 5_000 + "a = 1",
        "a" + " = a" * 5_000,
        "a" + " IS NULL" * 5_000,
        "a" + " CONTAINS 'x'" * 4_000,
        "a = " + "9" * 60_000,
        "a = 1e" + "9" * 60_000,
        "x" * (EXPRESSION_CHARS_MAX + 1),
    ],
)
def test_a_hostile_expression_is_refused(expression):
    with pytest.raises(FilterSyntaxError, match="Invalid MessageSelector"):
        compile_sql92(expression)


def test_a_long_chain_is_not_a_deep_one():
    chain = " AND ".join(f"a <> 'v{n}'" for n in range(3_000))
    assert compile_sql92(chain).matches({"a": "other"})
    assert not compile_sql92(chain).matches({"a": "v2999"})
    assert compile_sql92(f"a IN ({','.join(repr(str(n)) for n in range(5_000))})").matches({"a": "4999"})


@given(st.text(alphabet="ab='<>()+-.,0159eE \n/*TRUEANDORNOTISNULLBETWEENCONTAINS", max_size=60))
def test_garbage_is_a_syntax_error_or_a_filter_and_nothing_else(text):
    assert judge(text, {"a": "5", "b": "x"}) in "TFNEX"


@given(st.text(max_size=40), st.dictionaries(st.text(max_size=3), st.text(max_size=10)))
def test_any_text_over_any_properties_has_a_verdict(text, properties):
    assert judge(text, properties) in "TFNEX"


LITERALS = st.sampled_from(["TRUE", "FALSE", "missing = 1"])
VALUES = {"TRUE": True, "FALSE": False, "missing = 1": None}


@given(LITERALS, LITERALS)
def test_logic_has_three_values(left, right):
    a, b = VALUES[left], VALUES[right]
    both = compile_sql92(f"({left}) AND ({right})").evaluate({})
    either = compile_sql92(f"({left}) OR ({right})").evaluate({})
    assert both == (False if False in (a, b) else None if None in (a, b) else True)
    assert either == (True if True in (a, b) else None if None in (a, b) else False)
    assert compile_sql92(f"NOT ({left})").evaluate({}) == (None if a is None else not a)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1))
def test_numbers_compare_as_numbers(value, literal):
    properties = {"a": str(value)}
    assert compile_sql92(f"a > {literal}").matches(properties) == (value > literal)
    assert compile_sql92(f"a <= {literal}").matches(properties) == (value <= literal)
    assert compile_sql92(f"a = {literal}").matches(properties) == (value == literal)


@given(st.text(max_size=20))
def test_a_quoted_text_is_equal_to_itself(text):
    quoted = text.replace("'", "''")
    assert compile_sql92(f"a = '{quoted}'").matches({"a": text})


@pytest.mark.parametrize("text", ["1_0", "1 0", "", "+", "--1", "infinity", "nan", "0x", "1e", "١٫٥"])
def test_text_that_only_python_reads_as_a_number_is_not_a_number(text):
    with pytest.raises(UnequalKinds):
        java_double(text)
