"""`twinlog dev`: a name server and a broker in one process, on loopback."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from twinlog.broker.dev_service import DevService
from twinlog.cli.shared.option_values import read_port
from twinlog.cli.shared.running import LogJson, LogLevel, MetricsPort, print_ready, run_service, start_logging
from twinlog.metadata.errors import MetadataError
from twinlog.security.errors import SecurityError
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError


def dev(
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Keep everything here; default: a temporary directory.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", parser=read_port, metavar="PORT", help="Broker port; 0 takes a free one.")
    ] = 10911,
    namesrv_port: Annotated[
        int,
        typer.Option("--namesrv-port", parser=read_port, metavar="PORT", help="Name server port; 0 takes a free one."),
    ] = 9876,
    log_level: LogLevel = "warning",
    log_json: LogJson = False,
    metrics_port: MetricsPort = None,
) -> None:
    """Run a name server and a broker together, for development; Ctrl-C ends both."""
    start_logging(log_level, log_json)
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinlog-dev-")))
        where = directory
        run_service(
            lambda metrics: DevService(
                where, port=port, namesrv_port=namesrv_port, metrics=metrics, on_ready=report_ready
            ),
            expected=(StoreError, MetadataError, SecurityError, SettingsError),
            metrics_port=metrics_port,
            metrics_host="127.0.0.1",
        )


def report_ready(service: DevService) -> None:
    print_ready(f"twinlog dev ready: name server {service.namesrv_address}, broker {service.broker_address}")
