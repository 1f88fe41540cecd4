"""Makes sql92_golden.json: what Apache RocketMQ 5.5.0 itself makes of these expressions and properties.

    python tests/broker/pulls/filters/make_sql92_golden.py DIR    # a folder with rocketmq-filter, -common, guava and its jars

The letters are those of Sql92Golden.java. Run once per RocketMQ version; the tests only read the result.
"""

# ruff: noqa: E501
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ["a", "b", "A", "_x", "$y", "missing"]
VALUES = ["5", "5.0", "7", "-3", "+4", " 6", "0", "-0.0", "0.0", "abc", "ABC", "true", "TRUE", "false", "1e3", "NaN",
          "Infinity", "2147483648", "9223372036854775808", "3f", "0x10p1", "it's", "", "5 ", "١"]  # fmt: skip
NUMBERS = [
    "0",
    "5",
    "7",
    "3L",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "5.0",
    "5.",
    ".5",
    "1e3",
    "1E+3",
    "007",
]
WORDS = ["'abc'", "'ABC'", "'5'", "''", "'it''s'", "'b'", "'true'"]
BY_HAND = [
    "", " ", "a", "NOT a", "TRUE", "true", "FALSE", "NULL", "NOT NULL", "NOT TRUE", "5", "'abc'", "a = 5", "a=5", "a = 5 garbage",
    "a = 5 #", "a = 5 b ##", "a = 5 and b = 7", "A = 5 AND", "OR a = 5", "a == 5", "a != 5", "a <> 5", "a < > 5", "a >= 5 <= 7",
    "a IS NULL", "missing IS NULL", "missing IS NOT NULL", "a IS NOT NULL", "a IS", "a IS NOT", "a IS 5", "NULL IS NULL",
    "a = NULL", "a <> NULL", "NULL = a", "a > NULL", "a = b", "missing = nothing", "a = missing", "missing = a", "a <> missing",
    "missing <> a", "a = TRUE", "TRUE = a", "a = FALSE", "TRUE = 1", "1 = TRUE", "TRUE = TRUE", "TRUE = 'true'", "'true' = TRUE",
    "a > b", "a < b", "a > 'b'", "'b' > a", "a > TRUE", "(a = 5) > 1", "(a = 5) = TRUE", "NOT a = 5", "NOT (a = 5)", "NOT NOT (a = 5)",
    "a BETWEEN 1 AND 7", "a BETWEEN 7 AND 1", "a BETWEEN 5 AND 5", "a BETWEEN -7 AND -9", "a NOT BETWEEN 7 AND 1", "a BETWEEN 1",
    "a NOT BETWEEN 1 AND 7", "a BETWEEN 'a' AND 'b'", "a BETWEEN NULL AND 7", "a BETWEEN 1 AND NULL", "a BETWEEN b AND 9",
    "5 BETWEEN a AND 9", "a BETWEEN 1 AND 7 AND b = 7", "missing BETWEEN 1 AND 7", "missing NOT BETWEEN 1 AND 7",
    "a IN ('5')", "a IN ('abc','5')", "a IN ()", "a IN (5)", "a NOT IN ('5','7')", "missing IN ('5')", "missing NOT IN ('5')",
    "5 IN ('5')", "'5' IN ('5')", "a IN ('5') IN ('5')", "(a) IN ('5')", "a IN ('a','b','c','d','e','f','5')", "a IN '5'",
    "a CONTAINS 'b'", "a NOT CONTAINS 'b'", "missing CONTAINS 'b'", "missing NOT CONTAINS 'b'", "a CONTAINS ''", "a NOT CONTAINS ''",
    "a CONTAINS b", "'abc' CONTAINS 'b'", "5 CONTAINS '5'", "5 NOT CONTAINS '7'", "a CONTAINS 'b' CONTAINS 'b'", "TRUE CONTAINS 'T'",
    "a STARTSWITH 'a'", "a NOT STARTSWITH 'a'", "a ENDSWITH 'c'", "a NOT ENDSWITH 'c'", "a startswith 'a' OR a endswith 'c'",
    "-a = 5", "- a < 5", "-5 = -5", "--5 = 5", "- -5 = 5", "-(-5) = 5", "+5 = 5", "+a = 5", "+ + a = 5", "-'x' = 5", "-TRUE = TRUE",
    "a = -5", "a > -9223372036854775807", "a > -9223372036854775808", "a > 9223372036854775808", "a = 0.0", "a > 0.0", "a = 1e400",
    "a = 1e-400", "a = 5L", "a = 5l", "a = 0l", "a = 05", "a = .", "a = 1.e2", "a = 5.5.5", "5 = a", "5.0 = a", "2147483648 = a",
    "a = 5 -- comment", "a = 5 -- comment\nAND b = 7", "-- c\na = 5", "a /* x */ = /* ** */ 5", "a = 5 /* open", "/**/a = 5", "/***/a=5",
    "a = 'it''s'", "a = 'it's'", "a = 'open", "a = \"5\"", "a\t=\n5\r\f", "a\x0b= 5", "a = 5\x00", "_x = 5", "$y = 5", "a.b = 5", "a-b = 5",
    "1a = 5", "ä = 5", "a = 'ä'", "NOT", "()", "(a = 5", "a = 5)", "((((a = 5))))", "a AND b", "a OR TRUE", "TRUE OR a > b", "a > b OR TRUE",
    "FALSE AND a > b", "missing = 5 AND FALSE", "missing = 5 OR TRUE", "NOT (missing = 5)", "missing = 5 AND TRUE", "missing = 5 OR FALSE",
    "a = 5 OR b = 7 AND A = 5", "(a = 5 OR b = 7) AND A = 5", "a = b = TRUE", "a = 5 = TRUE", "a = 5 IS NULL", "a IS NULL IS NULL",
    "a = 5 IS NOT NULL", "isnull = 5", "nota = 5", "in = 5", "a IN('5')", "a  not  in  ( '5' , '7' )", "a NOT 5", "a NOT NULL", "a = NOT TRUE",
    "a = (NOT TRUE)", "a = +5", "a LIKE 'x'", "a = 5;", "now", "a + 1 = 6", "a * 2 = 10", "a,b", "a = 1 OR", "Infinity = a", "a = NaN",
]  # fmt: skip


def expression(rng: random.Random, depth: int) -> str:
    if depth > 3 or rng.random() < 0.15:
        return rng.choice([rng.choice(NAMES), rng.choice(NUMBERS), rng.choice(WORDS), "TRUE", "FALSE", "NULL"])
    sub = lambda: expression(rng, depth + rng.randint(1, 2))  # noqa: E731
    simple = lambda: rng.choice([rng.choice(NAMES), rng.choice(NAMES), rng.choice(NUMBERS), sub()])  # noqa: E731
    negated = rng.choice(["", "", "NOT "])
    return rng.choice(
        [
            lambda: f"{sub()} {rng.choice(['AND', 'OR', 'and', 'Or'])} {sub()}",
            lambda: f"({sub()}) {rng.choice(['AND', 'OR'])} ({sub()})",
            lambda: f"{simple()} {rng.choice(['=', '<>', '>', '>=', '<', '<='])} {simple()}",
            lambda: (
                f"{rng.choice(NAMES)} {rng.choice(['=', '<>', '>', '>=', '<', '<='])} {rng.choice(NUMBERS + NAMES)}"
            ),
            lambda: f"{rng.choice(NAMES)} {rng.choice(['=', '<>'])} {rng.choice(WORDS)}",
            lambda: f"{simple()} {negated}BETWEEN {simple()} AND {simple()}",
            lambda: f"{rng.choice(NAMES)} {negated}IN ({', '.join(rng.choices(WORDS, k=rng.randint(1, 6)))})",
            lambda: f"{simple()} {negated}{rng.choice(['CONTAINS', 'STARTSWITH', 'ENDSWITH'])} {rng.choice(WORDS)}",
            lambda: f"{simple()} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"NOT {rng.choice([sub(), '(' + sub() + ')'])}",
            lambda: f"{rng.choice('+-')}{sub()}",
            lambda: f"({sub()})",
        ]
    )()


def cases() -> list[tuple[str, dict[str, str]]]:
    rng = random.Random(20260115)
    fixed = [
        {},
        {"a": "5", "b": "7", "A": "5"},
        {"a": "abc", "b": "b"},
        {"a": "true"},
        {"a": "5.0"},
        {"a": "it's", "b": "-0.0"},
    ]
    found = [(text, properties) for text in BY_HAND for properties in fixed]
    for _ in range(2_000):
        properties = {name: rng.choice(VALUES) for name in NAMES[:5] if rng.random() < 0.7}
        found.append((expression(rng, 0), properties))
    return found


def judge(jars: Path, asked: list[tuple[str, dict[str, str]]]) -> str:
    lines = [
        " ".join(part.encode().hex() for part in (text, *(p for pair in ps.items() for p in pair)))
        for text, ps in asked
    ]
    with tempfile.TemporaryDirectory() as classes:
        source = str(HERE / "Sql92Golden.java")
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, source], check=True)
        command = ["java", "-cp", f"{classes}:{jars}/*", "Sql92Golden"]
        result = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return "".join(result.stdout.split())


if __name__ == "__main__":
    asked = cases()
    letters = judge(Path(sys.argv[1]), asked)
    assert len(letters) == len(asked), (len(letters), len(asked))
    rows = [[letter, text, properties] for letter, (text, properties) in zip(letters, asked, strict=True)]
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (HERE / "sql92_golden.json").write_text(f"[\n{body}\n]\n")
