"""The blocks of docs/spark.md that tests run as they stand there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def blocks(heading: str, *languages: str) -> list[list[str]]:
    """The code blocks below a heading, up to the next one of the same depth: a list for each language."""
    text, depth = PAGE.read_text(), len(heading) - len(heading.lstrip("#"))
    begin = text.index(f"\n{heading}\n")
    following = re.compile(rf"^#{{1,{depth}}} ", re.MULTILINE).search(text, begin + len(heading) + 2)
    section = text[begin : following.start() if following else None]
    return [re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL) for language in languages]
