"""The rules of the house that CONTRIBUTING.md gives: size of rooms, modules and functions, and what each room says."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "twinlog"
MODULES_MAX, MODULE_LINES_MAX, FUNCTION_LINES_MAX = 20, 500, 60

# Loops over every message of a chunk, where a call per message would cost as much as the work in it.
HOT_LOOPS = {
    "broker/sends/send_signed.py: _take_same",
    "broker/sends/send_signed_varied.py: take",
    "store/log/append_batch.py: append_elements",
    "store/log/append_batches.py: append_batches",
    "store/log/append_run.py: append_run",
}
SCENARIOS = {"tests/interop"}  # a file per scenario with Java; they mirror no room


def _modules(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with the lines of its body: a signature with one line per option has no logic to read."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.body[0].lineno + 1


@pytest.mark.parametrize("root", ["src", "tests", "tools"])
def test_a_room_has_at_most_20_modules(root: str):
    rooms = Counter(path.parent for path in _modules(ROOT / root) if path.name != "__init__.py")
    full = {str(room.relative_to(ROOT)): count for room, count in rooms.items() if count > MODULES_MAX}
    assert {room: count for room, count in full.items() if room not in SCENARIOS} == {}


def test_a_module_has_at_most_500_lines():
    sizes = {str(path.relative_to(SOURCE)): path.read_text().count("\n") for path in _modules(SOURCE)}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX} == {}


def test_the_body_of_a_function_has_at_most_60_lines_except_in_the_hot_loops():
    long = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in _modules(SOURCE)
        for name, lines in _functions(path)
        if lines > FUNCTION_LINES_MAX
    }
    assert long - HOT_LOOPS == set()


def test_every_room_says_what_it_is_for():
    rooms = {path.parent for path in _modules(SOURCE)}
    silent = [
        str(room.relative_to(SOURCE))
        for room in rooms
        if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    ]
    assert silent == []
