"""Parses `twinlog admin COMMAND ...` and runs the command."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from twinlog.cli.admin.command import COMMANDS, AdminCommand
from twinlog.cli.admin.examples import examples_of
from twinlog.cli.shared.connecting import (
    Candidate,
    Parser,
    add_connection_options,
    argparse_app,
    client_options,
    connection_of,
    option_candidates,
    run_client,
)
from twinlog.cli.shared.explain import did_you_mean
from twinlog.cli.shared.report import redrawing, show
from twinlog.client import Admin
from twinlog.telemetry.log import setup_logging

_NAME_LENGTH_MAX = 14  # of a value in a help page that fits 80 columns
SUBJECTS = (
    "clusters",
    "topics",
    "groups",
    "offsets",
    "messages",
    "traces",
    "dead_letters",
    "sending",
    "names",
    "accounts",
    "exports",
    "replicas",
)


def run(arguments: Sequence[str]) -> int:
    """Run one command; 0 when it worked, 1 when it failed, 2 when its arguments are wrong."""
    load_commands()
    if not arguments or (arguments[0] in ("-h", "--help", "help") and len(arguments) == 1):
        sys.stdout.write(overview())
        return 0
    name, rest = (arguments[1], ["--help"]) if arguments[0] == "help" else (arguments[0], list(arguments[1:]))
    found = find(name)
    if found is None:
        nearest = did_you_mean(name, COMMANDS)
        print(
            f"twinlog admin: there is no command {name!r}{nearest or '; `twinlog admin help` lists them'}",
            file=sys.stderr,
        )
        return 2
    args = parser_of(found).parse_args(rest)
    setup_logging(args.log_level)
    for option in found.options:
        if option.unused and getattr(args, option.long) is not None:
            print(f"twinlog admin {found.name}: -{option.short} {option.help}", file=sys.stderr)
    return run_client(f"admin {found.name}", _run(found, args), connection_of(args))


def complete(words: Sequence[str]) -> Iterator[Candidate]:
    """The commands, or the options of the command that is typed already."""
    load_commands()
    found = find(words[0]) if words and words[0] != "help" else None
    if found is not None:
        yield from option_candidates(parser_of(found))
    elif not words or words == ["help"]:
        yield from (Candidate(one.name, one.summary) for one in COMMANDS.values())


admin_app = argparse_app("admin", "Administer a cluster, with mqadmin's commands and flags.", run, complete=complete)


def load_commands() -> None:
    for subject in SUBJECTS:
        import_module(f"twinlog.cli.admin.{subject}")


def find(name: str) -> AdminCommand | None:
    """The command, in upper or lower case."""
    return COMMANDS.get(name) or next((c for n, c in COMMANDS.items() if n.lower() == name.lower()), None)


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["Usage: twinlog admin COMMAND [options]", "`twinlog admin help COMMAND` shows the options.", ""]
    for subject in SUBJECTS:
        lines.append(f"{subject.replace('_', ' ')}:")
        lines += [f"  {c.name:{width}}  {c.summary}" for c in COMMANDS.values() if c.subject == subject]
    return "\n".join(lines) + "\n"


def parser_of(found: AdminCommand) -> argparse.ArgumentParser:
    epilog = "example:\n" + "".join(f"  {line}\n" for line in examples_of(found))
    parser = Parser(prog=f"twinlog admin {found.name}", description=found.summary, epilog=epilog, allow_abbrev=False)
    either = parser.add_mutually_exclusive_group(required=True) if any(o.only_one for o in found.options) else None
    for option in found.options:
        target = either if option.only_one and either is not None else parser
        names = [f"-{option.short}", f"--{option.long}"] if option.short else [f"--{option.long}"]
        if option.flag:
            target.add_argument(*names, dest=option.long, help=option.help, action="store_true")
            continue
        target.add_argument(
            *names,
            dest=option.long,
            help=option.help,
            default=option.default,
            type=option.kind,
            metavar=option.long.upper() if len(option.long) <= _NAME_LENGTH_MAX else "VALUE",
            required=option.required,
        )
    add_connection_options(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--timeout-ms", type=int, default=5_000, help="how long to wait for each answer")
    return parser


async def _run(found: AdminCommand, args: argparse.Namespace) -> None:
    """Run the command and show its report; with an interval again and again, until Ctrl-C."""
    seconds = getattr(args, "interval", None)
    async with Admin(args.namesrvAddr, options=client_options(args), timeout_ms=args.timeout_ms) as running:
        if not seconds:
            show(await found.run(running, args), sys.stdout, as_json=args.json)
            return
        with redrawing(sys.stdout, as_json=args.json) as draw:
            while True:
                draw(await found.run(running, args))
                await asyncio.sleep(seconds)
