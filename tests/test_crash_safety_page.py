"""docs/crash-safety.md names the tests that attack each write: they must exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "crash-safety.md").read_text())
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in _text(ROOT / file)]
    assert missing == []


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
