"""The blocks of docs/spark.md that tests run as they stand there."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
_FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks(heading: str, *languages: str) -> list[list[str]]:
    """The code blocks below a heading, up to the next one of the same depth: a list for each language."""
    text, depth = PAGE.read_text(), len(heading) - len(heading.lstrip("#"))
    begin = f"\n{text}".index(f"\n{heading}\n")
    following = re.compile(rf"^#{{1,{depth}}} ", re.MULTILINE).search(text, begin + len(heading) + 1)
    found = _FENCED.findall(text[begin : following.start() if following else None])
    return [[code for language, code in found if language == wanted] for wanted in languages]


def commands(heading: str) -> list[list[str]]:
    """The words after `twinlog pipeline` of each command below a heading."""
    (found,) = blocks(heading, "")
    lines = (shlex.split(line, comments=True) for code in found for line in code.replace("\\\n", " ").splitlines())
    return [words[2:] for words in lines if words[:2] == ["twinlog", "pipeline"]]
