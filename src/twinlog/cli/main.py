"""The `twinlog` command. Each subcommand has a module of its own, imported only when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from twinlog.cli.shared.lazy import Lazy, LazyGroup
from twinlog.cli.shared.streams import leave_pipe, open_missing

COMMANDS: dict[str, Lazy] = {
    "namesrv": Lazy("twinlog.cli.namesrv:namesrv", "Run a name server."),
    "broker": Lazy("twinlog.cli.broker:broker", "Run a broker."),
    "dev": Lazy("twinlog.cli.dev:dev", "Run a name server and a broker together, for development."),
    "cluster": Lazy("twinlog.cli.cluster:cluster", "Run the name server and brokers of a folder of conf/."),
    "admin": Lazy("twinlog.cli.admin.app:admin_app", "Administer a cluster, with mqadmin's commands and flags."),
    "send": Lazy("twinlog.cli.send:send_app", "Send lines of standard input as messages."),
    "consume": Lazy("twinlog.cli.consume:consume_app", "Print messages as lines."),
    "replication": Lazy("twinlog.cli.replication.app:replication", "Show and control replicas: status, rejoin, ..."),
    "failover": Lazy(
        "twinlog.cli.failover.app:failover", "Automatic failover: who is master, history, switchover, ..."
    ),
    "top": Lazy("twinlog.cli.top.app:top", "Show brokers, replicas, topics and groups live, in the terminal."),
    "exporter": Lazy("twinlog.cli.exporter:exporter_app", "Serve Prometheus metrics of any cluster, Java's too."),
    "doctor": Lazy(
        "twinlog.cli.doctor.app:doctor_command", "Say what is wrong with a broker or a cluster, and what to do."
    ),
    "diagnose": Lazy(
        "twinlog.cli.diagnose.app:diagnose", "Say why a group gets no messages, or a replica does not follow."
    ),
    "dashboard": Lazy("twinlog.cli.dashboard:dashboard_app", "Show a cluster in the browser, and control it there."),
    "pipeline": Lazy("twinlog.cli.pipeline.app:app", "Run data jobs on Spark: sync, archive, audit, restore, lag."),
    "tls": Lazy("twinlog.cli.tls:tls", "Make the certificates of a cluster."),
    "completion": Lazy("twinlog.cli.completion:completion", "Print the script that completes commands in a shell."),
    "store": Lazy("twinlog.cli.store.app:store", "Inspect store directories; send a tail that was set aside again."),
}


class RootGroup(LazyGroup):
    table = COMMANDS

    def nearest(self, name: str) -> str:
        from twinlog.cli.admin.app import find, load_commands

        load_commands()
        if find(name) is not None:  # mqadmin has no word in front of its commands
            return f"; did you mean 'twinlog admin {name}'?"
        return super().nearest(name)


app = typer.Typer(cls=RootGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from twinlog import __version__

        typer.echo(f"twinlog {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """RocketMQ-compatible name server, broker, replica and tools."""


def main() -> None:
    """The console script. An OSError that a command does not handle itself ends here, in one line."""
    open_missing()
    try:
        try:
            app(prog_name="twinlog")
        finally:
            sys.stdout.flush()
    except OSError as problem:
        leave_pipe()
        if not isinstance(problem, BrokenPipeError):
            print(f"twinlog: {problem}; check the files named and where the output goes", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
