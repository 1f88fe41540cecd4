"""README as a newcomer reads it: every command and every program in it runs, and prints what the page shows."""

import os
import shutil
from pathlib import Path

import pytest
from tests.pages.console import Block, Reader, blocks_of, can_separate_networks, steps_of, tools_of

ROOT = Path(__file__).parents[2]
BLOCKS = blocks_of(ROOT / "README.md")
NOT_HERE = ("make demo", "python3 -m venv")  # `make demo`, and tests/pages/test_newcomer.py
pytestmark = [
    pytest.mark.skipif(not can_separate_networks(), reason="this system has no network namespaces for users"),
    pytest.mark.timeout(400),
]


def is_spark(block: Block) -> bool:
    return "spark" in block.text or "pipeline" in block.text


def test_the_page_has_the_blocks_that_are_run():
    kinds = [block.language for block in BLOCKS if not block.text.startswith(NOT_HERE)]
    assert kinds == ["", "", "", "python", "python", "python", ""]


@pytest.mark.parametrize(
    "with_spark",
    [False, pytest.param(True, marks=[pytest.mark.interop, pytest.mark.spark])],
    ids=["without Spark", "with Spark"],
)
def test_every_block_runs_in_its_order(with_spark: bool, tmp_path: Path):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    environment = {**os.environ, "PATH": tools_of(tmp_path / "bin"), "HOME": str(tmp_path), "COLUMNS": "80"}
    environment.pop("NAMESRV_ADDR", None)
    with Reader(tmp_path, environment) as reader:
        for number, block in enumerate(BLOCKS):
            if block.text.startswith(NOT_HERE) or (is_spark(block) and not with_spark):
                continue
            run(block, reader, tmp_path, f"block_{number}")


def run(block: Block, reader: Reader, home: Path, name: str) -> None:
    text = block.text.replace("/tmp/", f"{home}/")
    if block.language == "":
        for step in steps_of(text):
            if step.command.startswith("xxd"):
                compare_bytes(step.printed, Path(step.command.split()[-1]))
                continue
            reader.follow(step)
    elif "def test_" in text:
        (home / f"test_{name}.py").write_text(text)
        status, output = reader.type(f"pytest -q -p no:cacheprovider test_{name}.py")
        assert status == 0, output
    else:
        reader.run_python(text, name)


def compare_bytes(printed: list[str], log: Path) -> None:
    """The bytes that the page shows are those of the log, but for the queue, times and ports of the sender."""
    shown = bytes.fromhex("".join(line[10:49] for line in printed))
    found = bytearray(log.read_bytes()[: len(shown)])
    for begin, end in ((12, 16), (40, 48), (52, 64)):
        found[begin:end] = shown[begin:end]
    assert bytes(found) == shown
