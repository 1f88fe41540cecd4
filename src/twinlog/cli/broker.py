"""`twinlog broker`: run a broker until a signal stops it."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from twinlog.base.system_calls import keep_freed_memory
from twinlog.broker.broker import Broker
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
from twinlog.metadata.errors import MetadataError
from twinlog.replication.errors import ReplicationError
from twinlog.security.errors import SecurityError
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError


def broker(
    config: ConfigFile = None,
    namesrv: Annotated[
        str | None, typer.Option("-n", "--namesrv", metavar="HOST:PORT;...", help="Name servers to register with.")
    ] = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
    metrics_port: MetricsPort = None,
) -> None:
    """Run a broker: it stores messages and serves producers and consumers."""
    start_logging(log_level, log_json)
    options = {"namesrvAddr": namesrv, "metricsPort": metrics_port}
    conf = load_conf(load_broker_conf, config, options, print_only=print_config)
    keep_freed_memory()
    run_service(
        lambda metrics: Broker(conf, metrics=metrics, on_ready=report_ready),
        pages=lambda broker: broker.answer_page,
        expected=(StoreError, MetadataError, SecurityError, ReplicationError, SettingsError),
        metrics_port=conf.broker.metrics_port,
        metrics_host=conf.broker.bind_address,
    )


def report_ready(running: Broker) -> None:
    gc.collect()
    gc.freeze()  # what exists now stays until the process ends; later collections skip it
    settings = running.conf.broker
    print_ready(f"twinlog broker {settings.broker_name} ready on {running.address} ({settings.broker_role})")
