"""What the commands that run a server share: their options, the event loop, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, NoReturn, Protocol, TypeVar

import typer

from twinlog.base.system_calls import new_event_loop
from twinlog.cli.shared.option_values import read_port
from twinlog.cli.shared.service_manager import service_manager
from twinlog.cli.shared.streams import leave_pipe
from twinlog.settings.conf_file import exposed_secret
from twinlog.settings.errors import SettingsError
from twinlog.settings.net import NetSettings
from twinlog.settings.properties import format_properties
from twinlog.telemetry.log import LEVELS, get_logger, limit_lines, setup_logging
from twinlog.telemetry.metrics import Metrics
from twinlog.telemetry.metrics_port import MetricsServer, Pages

log = get_logger(__name__)
_FILES_MAX = 1 << 20

ConfigFile = Annotated[str | None, typer.Option("-c", "--config", metavar="FILE", help="Java properties file.")]
PrintConfig = Annotated[bool, typer.Option("-p", "--print", help="Print all settings and exit.")]
LogLevel = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON objects.")]


MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", parser=read_port, metavar="PORT", help="Serve Prometheus metrics on this port."),
]


class Service(Protocol):
    async def run(self) -> None: ...


class Conf(Protocol):
    @property
    def warnings(self) -> Iterable[object]: ...
    @property
    def net(self) -> NetSettings: ...
    def properties(self) -> Mapping[str, str]: ...


C = TypeVar("C", bound=Conf)


def start_logging(level: str, as_json: bool) -> None:
    try:
        setup_logging(level, as_json)
    except ValueError as problem:
        fail(problem)


def load_conf(
    load: Callable[..., C], path: str | None, options: Mapping[str, object | None], *, print_only: bool = False
) -> C:
    """The settings of a file, except where an option is given; `print_only` shows them and ends the command."""
    overrides = {key: str(value) for key, value in options.items() if value is not None}
    try:
        conf = load(path, overrides=overrides)
    except SettingsError as problem:
        fail(problem)
    limit_lines(conf.net.log_lines_per_s)
    for warning in conf.warnings:
        log.warning(str(warning))
    if path is not None and (key := exposed_secret(path)) is not None:
        log.warning("every user of this machine can read a secret", file=path, key=key, advice=f"chmod 600 {path}")
    if print_only:
        typer.echo(format_properties(conf.properties()), nl=False)
        raise typer.Exit
    return conf


def fail(problem: object) -> NoReturn:
    """End the command with a message for the operator."""
    print(f"twinlog: {problem}", file=sys.stderr)
    raise typer.Exit(1)


S = TypeVar("S", bound=Service)


def run_service(
    make: Callable[[Metrics | None], S],
    *,
    pages: Callable[[S], Pages] | None = None,
    expected: tuple[type[Exception], ...] = (),
    metrics_port: int | None = None,
    metrics_host: str = "0.0.0.0",
) -> None:
    """Make a service inside the event loop and run it until SIGINT or SIGTERM; `expected` errors end in one line.

    `pages` returns what else the metrics port answers.
    """
    allow_many_files()

    async def run() -> None:
        metrics, server = Metrics() if metrics_port is not None else None, None
        async with contextlib.AsyncExitStack() as stack:
            if metrics is not None and metrics_port is not None:
                server = MetricsServer(metrics, host=metrics_host, port=metrics_port)
                await server.start()
                stack.push_async_callback(server.stop)
            service = make(metrics)
            if server is not None and pages is not None:
                server.pages = pages(service)
            watch = asyncio.create_task(service_manager().watch(), name="ServiceManager")
            stack.callback(watch.cancel)
            await run_until_signal(service)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run())
    except (OSError, *expected) as problem:
        fail(problem)


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system permits: every connection and every segment is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES_MAX)), hard))


async def run_until_signal(service: Service) -> None:
    """Run `service`; the first SIGINT or SIGTERM cancels it and waits while it closes."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        service_manager().stopping()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await service.run()


def print_ready(line: str) -> None:
    """Print that the service can be used, and tell systemd; a closed standard output is not an error."""
    service_manager().ready(line)
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("standard output takes nothing", line=line, error=str(error))
        leave_pipe()
