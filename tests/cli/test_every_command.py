"""All commands, walked: each has an example that it parses itself, and those that connect have the same options."""

import itertools
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer

from twinlog.cli import consume, dashboard, exporter, send
from twinlog.cli.admin.app import COMMANDS, find, load_commands, parser_of
from twinlog.cli.admin.examples import examples_of
from twinlog.cli.main import app
from twinlog.cli.shared.examples import EXAMPLES

ACCOUNT_AND_TLS = {"--access-key", "--secret-key", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--tls-insecure"}
PARSERS = {
    "send": send.parser,
    "consume": consume.parser,
    "dashboard": dashboard._parser,
    "exporter": exporter.parser,
}
# These ask etcd, not brokers: only the authority is the same.
ETCD = {f"failover {name}" for name in ("list", "history", "switchover", "failover", "pause", "resume")}
# These run servers, read files, or make something: they connect to no broker with a client's account.
SERVERS_AND_FILES = {"namesrv", "broker", "dev", "cluster", "completion", "tls init", "replication rejoin"} | {
    "failover reinit",
    *(f"pipeline {name}" for name in ("compact", "status", "versions", "expire", "script")),
    "store dump",
    "store verify",
    "store compare",
}


def walk():
    """(path, command) of every command that runs something; for admin one per command."""
    root = typer.main.get_command(app)
    stack = [("", root, root.make_context("twinlog", [], resilient_parsing=True))]
    while stack:
        path, command, context = stack.pop()
        if not hasattr(command, "list_commands"):
            yield path, command
            continue
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            inner = type(context)(child, info_name=name, parent=context)
            stack.append((f"{path} {name}".strip(), child, inner))


@pytest.fixture(scope="module")
def commands():
    load_commands()
    return dict(walk())


def options_of(path, command):
    if path in PARSERS:
        return {option for action in PARSERS[path]()._actions for option in action.option_strings}
    return {option for parameter in command.params for option in getattr(parameter, "opts", [])}


def test_every_command_that_connects_has_the_same_options_for_accounts_and_tls(commands):
    for name in COMMANDS:
        parser = parser_of(find(name))
        assert {o for action in parser._actions for o in action.option_strings} >= {*ACCOUNT_AND_TLS, "-n"}, name
    for path, command in commands.items():
        options = options_of(path, command)
        if path in ETCD:
            assert {"--etcd", "--tls-ca", "--etcd-user", "--etcd-password"} <= options, path
        elif path not in SERVERS_AND_FILES and path != "admin":
            assert options >= ACCOUNT_AND_TLS, f"{path} lacks {ACCOUNT_AND_TLS - options}"
    assert {*ETCD, *SERVERS_AND_FILES} <= commands.keys(), "the lists name commands that exist"


def test_every_command_has_an_example_that_it_parses(commands):
    for path, command in commands.items():
        if path == "admin":
            continue
        shown = PARSERS[path]().format_help() if path in PARSERS else command.epilog or ""
        lines = [line for line in shown.splitlines() if f"twinlog {path}" in line and "Usage" not in line]
        examples = [line for line in lines if not line.strip().startswith("usage:")]
        assert examples, f"{path} has no example in its help"
        for line in examples:
            parse(path, command, line)
    for name, each in EXAMPLES.items():
        assert name in commands and all(f"twinlog {name}" in line for line in each), name


def parse(path, command, line):
    """Parse the part of an example that is this command, without running it."""
    typed = shlex.split(re.sub(r'.*"\$\((.*)\)".*', r"\1", line))  # a part in $(...) is a command of its own
    begin = next(at for at in range(len(typed)) if typed[at : at + 1 + len(path.split())] == ["twinlog", *path.split()])
    words = list(itertools.takewhile(lambda word: word not in "|<>", typed[begin + 1 + len(path.split()) :]))
    if path in PARSERS:
        PARSERS[path]().parse_args(words)
    else:
        command.make_context(path, words)


def test_every_admin_command_has_an_example_that_it_parses(commands):
    for command in COMMANDS.values():
        (line,) = examples_of(command)
        program, admin, name, *words = shlex.split(line)
        assert (program, admin, name) == ("twinlog", "admin", command.name) and "TODO" not in line
        parser_of(command).parse_args(words)
        assert line in parser_of(command).format_help()


def test_help_pages_fit_80_columns(commands, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS.values():
        page = parser_of(command).format_help().partition("options:")[2].splitlines()
        too_long = [line for line in page if len(line) > 80 and "twinlog admin" not in line]
        assert not too_long, (command.name, too_long)


def test_help_pages_are_filled_to_the_width_and_flags_have_no_value(commands, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for path, make in PARSERS.items():
        page = make().format_help().partition("example")[0].splitlines()
        assert not [line for line in page if len(line) > 80], path
    for path, command in commands.items():
        if path not in PARSERS and path != "admin":
            assert "\n" not in (command.help or "").replace("\n\n", ""), f"{path}: a line ends where the source's does"
            flags = [one for one in command.params if getattr(one, "is_flag", False)]
            assert [one.metavar for one in flags] == [""] * len(flags), path
    root = typer.main.get_command(app)
    context = root.make_context("twinlog", [], resilient_parsing=True)
    assert {one.metavar for one in root.get_params(context)} == {""}, "--version and --help take no value"


ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("COMP_")}


def completed(shell: str, words: str) -> list[str]:
    """What a shell gets for the words typed so far."""
    environment = {"_TWINLOG_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words, "COMP_WORDS": words}
    environment |= {"COMP_CWORD": str(len(words.split(" ")) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    command = [sys.executable, "-m", "twinlog.cli.main"]
    done = subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=50)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "twinlog repl", "replication"),
        ("zsh", "twinlog admin updateTopicP", "updateTopicPerm"),
        ("fish", "twinlog admin updateTopic --wri", "--writeQueueNums"),
        ("bash", "twinlog diagnose group --mem", "--member-access-key"),
        ("bash", "twinlog send --key-", "--key-from"),
    ],
)
def test_shells_complete_commands_and_options(shell, words, expected):
    assert expected in " ".join(completed(shell, words))


def test_the_script_for_bash_completes_in_a_real_bash(tmp_path):
    (tmp_path / "twinlog").write_text(f'#!/bin/sh\nexec {sys.executable} -m twinlog.cli.main "$@"\n')
    (tmp_path / "twinlog").chmod(0o755)
    script = 'eval "$(twinlog completion bash)"; COMP_WORDS=(twinlog adm); COMP_CWORD=1; _twinlog_completion twinlog; '
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script + 'echo "${COMPREPLY[@]}"'], env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.strip() == "admin", done.stderr
