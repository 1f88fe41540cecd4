"""Findings as text: what, the evidence, the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinlog.cli.shared.report import Report, Table
from twinlog.observe.findings import Finding, Weight

_WORDS = {Weight.PROBLEM: "PROBLEM", Weight.NOTE: "note", Weight.FINE: "ok"}


def report_of(found: Mapping[str, Sequence[Finding]]) -> Report:
    """One block for each thing that was looked at, the most urgent finding first."""
    tables = list[Table]()
    for subject, findings in found.items():
        notes = list[str]()
        for one in findings:
            notes.append(f"{_WORDS[one.weight]}: {one.what}")
            notes += [f"  seen: {line}" for line in one.evidence]
            notes += [f"  next: {one.todo}"] if one.todo else []
        tables.append(Table([], [], subject, notes))
    return Report(tables, [], {subject: [_data(one) for one in each] for subject, each in found.items()})


def exit_status(found: Mapping[str, Sequence[Finding]]) -> int:
    """1 when there is a problem."""
    return int(any(one.weight is Weight.PROBLEM for each in found.values() for one in each))


def _data(one: Finding) -> dict[str, Any]:
    return {"weight": one.weight.name.lower(), "what": one.what, "evidence": list(one.evidence), "next": one.todo}
