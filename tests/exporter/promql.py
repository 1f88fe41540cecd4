"""The metric names in a PromQL expression; enough of the language for rules and dashboards, without a parser for it."""

from __future__ import annotations

import re

_WORDS = frozenset(
    "by without on ignoring group_left group_right bool offset and or unless inf nan atan2 start end".split()
)
_LISTS = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


def metric_names(expression: str) -> set[str]:
    """Names outside of label lists and matchers that are not called as a function.

    >>> sorted(metric_names('sum by (topic) (rate(a_total{x="b_c"}[5m])) / on (x) group_left (y) d:e'))
    ['a_total', 'd:e']
    """
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = _LISTS.sub(" ", text)
    found = re.findall(r"(?<![\w.:$])([a-zA-Z_:][\w:]*)\s*(\(?)", text)
    return {name for name, call in found if not call and name.lower() not in _WORDS}
