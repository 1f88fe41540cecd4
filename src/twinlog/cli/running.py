"""What every long-running command shares: its options, its event loop, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, NoReturn, Protocol

import typer

from twinlog.telemetry.log import LEVELS, get_logger, setup_logging
from twinlog.telemetry.metrics import Metrics
from twinlog.telemetry.metrics_service import MetricsService

log = get_logger(__name__)

ConfigFile = Annotated[str | None, typer.Option("-c", "--config", metavar="FILE", help="Java properties file.")]
LogLevel = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON objects.")]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=0, max=65535, help="Serve Prometheus metrics on this port.")
]


class Service(Protocol):
    async def run(self) -> None: ...


def start_logging(level: str, as_json: bool) -> None:
    try:
        setup_logging(level, as_json)
    except ValueError as problem:
        fail(problem)


def warn_about(warnings: Iterable[object]) -> None:
    """Log what the settings file says in vain."""
    for warning in warnings:
        log.warning(str(warning))


def fail(problem: object) -> NoReturn:
    """End the command with a message for the operator."""
    print(f"twinlog: {problem}", file=sys.stderr)
    raise typer.Exit(1)


def run_service(
    make: Callable[[Metrics | None], Service],
    *,
    expected: tuple[type[Exception], ...] = (),
    metrics_port: int | None = None,
    metrics_host: str = "0.0.0.0",
) -> None:
    """Make a service inside the event loop and run it until SIGINT or SIGTERM; errors of `expected` end it politely."""
    import uvloop

    async def run() -> None:
        metrics = Metrics() if metrics_port is not None else None
        async with contextlib.AsyncExitStack() as stack:
            if metrics is not None and metrics_port is not None:
                endpoint = MetricsService(metrics, host=metrics_host, port=metrics_port)
                await endpoint.start()
                stack.push_async_callback(endpoint.stop)
            await run_until_signal(make(metrics))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except (OSError, *expected) as problem:
        fail(problem)


async def run_until_signal(service: Service) -> None:
    """Run `service`; the first SIGINT or SIGTERM cancels it and waits while it closes."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await service.run()


def ready(line: str) -> None:
    """Tell standard output, once, that the service can be used."""
    print(line, flush=True)
