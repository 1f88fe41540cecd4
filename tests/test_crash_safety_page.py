"""docs/crash-safety.md names the tests that attack each write: they must exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "crash-safety.md").read_text()))
    assert len(named) > 20
    files = (ROOT / "tests").rglob("test_*.py")
    defined = {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    assert named - defined == set()
