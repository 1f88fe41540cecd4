"""What a check found, and how all of it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.cli.shared.report import Report, text_report


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as it should
    ERROR = "error"  # it does not work, or will not when something fails


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of one check; `todo` is what to do, unless all is well."""

    area: str
    level: Level
    what: str
    todo: str = ""


def ok(area: str, what: str) -> Finding:
    return Finding(area, Level.OK, what)


def warning(area: str, what: str, todo: str) -> Finding:
    return Finding(area, Level.WARNING, what, todo)


def error(area: str, what: str, todo: str) -> Finding:
    return Finding(area, Level.ERROR, what, todo)


def exit_status(findings: Sequence[Finding], *, strict: bool) -> int:
    """1 for an error, with `strict` for a warning too; else 0."""
    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    return int(any(one.level in bad for one in findings))


def report_of(findings: Sequence[Finding]) -> Report:
    """A line for each finding, the worst last, where a terminal shows it; then one line with the counts."""
    order = {Level.OK: 0, Level.WARNING: 1, Level.ERROR: 2}
    lines = list[str]()
    for one in sorted(findings, key=lambda finding: order[finding.level]):
        lines.append(f"{one.level.upper():7} {one.area}: {one.what}")
        if one.todo:
            lines.append(f"        -> {one.todo}")
    counts = {level: sum(one.level is level for one in findings) for level in Level}
    lines.append(f"{counts[Level.OK]} checks are fine, {counts[Level.WARNING]} warnings, {counts[Level.ERROR]} errors")
    data = [{"area": one.area, "level": str(one.level), "what": one.what, "todo": one.todo} for one in findings]
    return text_report(*lines, data=data)
