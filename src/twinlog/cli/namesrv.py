"""`twinlog namesrv`: run a name server until a signal stops it."""

from __future__ import annotations

from typing import Annotated

import typer

from twinlog.base.addresses import address_text
from twinlog.cli.shared.option_values import read_port
from twinlog.cli.shared.running import (
    ConfigFile,
    LogJson,
    LogLevel,
    MetricsPort,
    PrintConfig,
    load_conf,
    print_ready,
    run_service,
    start_logging,
)
from twinlog.nameserver.errors import NameServerError
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.security.errors import SecurityError
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver_conf import load_nameserver_conf


def namesrv(
    config: ConfigFile = None,
    port: Annotated[
        int | None,
        typer.Option("--port", parser=read_port, metavar="PORT", help="Port to listen on; 0 takes a free one."),
    ] = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
    metrics_port: MetricsPort = None,
) -> None:
    """Run a name server: brokers register here, clients ask here for routes."""
    start_logging(log_level, log_json)
    options = {"listenPort": port, "metricsPort": metrics_port}
    conf = load_conf(load_nameserver_conf, config, options, print_only=print_config)
    settings = conf.nameserver
    run_service(
        lambda metrics: NameServerService(
            conf,
            metrics=metrics,
            on_ready=lambda service: print_ready(
                f"twinlog namesrv ready on {address_text(settings.bind_address, service.port)}"
            ),
        ),
        pages=lambda service: service.answer_page,
        expected=(NameServerError, SecurityError, SettingsError),
        metrics_port=settings.metrics_port,
        metrics_host=settings.bind_address,
    )
