"""Every option that a text of the pipeline names exists where that text can appear."""

import ast
import re
from pathlib import Path

import pytest
import typer

pytest.importorskip("pyspark")

import twinlog
from twinlog.cli.pipeline.app import COMMANDS, app
from twinlog.settings.known_keys import JAVA_KEYS
from twinlog.spark.jobs.restore.restore_plan import STORE_OPTIONS
from twinlog.spark.reading.brokers import options as reads
from twinlog.spark.reading.stores import options as stores
from twinlog.spark.writing import options as writes

SOURCE = Path(twinlog.__file__).parent
NOT_FOR_USERS = ("java_launcher.py", "plot.py")  # words of Java's command line, and of style sheets
FILES = [*(SOURCE / "spark").rglob("*.py"), *(SOURCE / "cli" / "pipeline").glob("*.py")]
FILES = sorted(path for path in FILES if path.name not in NOT_FOR_USERS)
WORD = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")
SETTING = re.compile(r"(?<![\w.$-])([a-z]+[A-Z][\w.]*|[a-z]+)=(?:true|false|any|group|latest|earliest|parquet|delta)\b")
OF_PROTOC = {"--include_imports", "--descriptor_set_out"}
# Which commands a module works for; the others are shared, and name only what is somewhere.
OF_COMMANDS = {
    "archive": ("archive", "compact"),
    "compact": ("archive", "compact"),
    "restore": ("restore",),
    "sync": ("sync",),
    "audit": ("audit",),
    "lag": ("lag",),
    "metadata_diff": ("metadata-diff",),
}


def command_options() -> dict[str, set[str]]:
    pipeline, found = typer.main.get_command(app), {}
    for name in COMMANDS:
        command = pipeline.get_command(None, name)
        found[name] = {word for param in command.params for word in (*param.opts, *param.secondary_opts)} | {"--help"}
    return found


def texts(path: Path) -> set[str]:
    """The strings of a module that a user may see: not its documentation."""
    tree = ast.parse(path.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare]
    return {node.value for node in constants if isinstance(node.value, str)}


def commands_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    for part in parts[2:]:
        for name, commands in OF_COMMANDS.items():
            if part == name or part.startswith(f"{name}_"):
                return commands
    return ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_options_of_commands_that_a_text_names_exist(path):
    known = command_options()
    allowed = set().union(*(known[name] for name in commands_of(path) or known))
    named = {word for text in texts(path) for word in WORD.findall(text)} - OF_PROTOC
    assert named <= allowed, f"{path}: {named - allowed}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_options_of_sources_that_a_text_names_exist(path):
    known = {*reads._BOTH, *reads._BATCH, *reads._STREAM, *stores._KNOWN, *stores._STREAM, *writes._BOTH}
    known |= {*STORE_OPTIONS, *stores.SELECTING_IN_BATCH, *JAVA_KEYS}  # and the brokers' own settings
    named = {word for text in texts(path) for word in SETTING.findall(text)}
    assert named <= known, f"{path}: {named - known}"
