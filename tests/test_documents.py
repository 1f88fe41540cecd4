"""The documents name files and pages that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/**/*.md")])
SOURCES = ("", "src/", "src/twinlog/", "docs/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path):
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|md|toml|json|sh))`", page.read_text())
    missing = [name for name in named if not any((ROOT / folder / name).exists() for folder in SOURCES)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
