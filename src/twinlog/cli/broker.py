"""`twinlog broker`: run a broker until it is told to stop."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from twinlog.broker.broker import Broker
from twinlog.cli.running import (
    ConfigFile,
    LogJson,
    LogLevel,
    MetricsPort,
    fail,
    ready,
    run_service,
    start_logging,
    warn_about,
)
from twinlog.metadata.errors import MetadataError
from twinlog.replication.errors import ReplicationError
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties
from twinlog.store.errors import StoreError


def broker(
    config: ConfigFile = None,
    namesrv: Annotated[
        str | None, typer.Option("-n", "--namesrv", metavar="HOST:PORT;...", help="Name servers to register with.")
    ] = None,
    print_config: Annotated[bool, typer.Option("-p", "--print", help="Print all settings and exit.")] = False,
    log_level: LogLevel = "info",
    log_json: LogJson = False,
    metrics_port: MetricsPort = None,
) -> None:
    """Run a broker: it stores messages and serves producers and consumers."""
    start_logging(log_level, log_json)
    options = {"namesrvAddr": namesrv, "metricsPort": metrics_port}
    overrides = {key: str(value) for key, value in options.items() if value is not None}
    try:
        conf = load_broker_conf(config, overrides=overrides)
    except SettingsError as problem:
        fail(problem)
    warn_about(conf.warnings)
    if print_config:
        typer.echo(format_properties(conf.properties()), nl=False)
        return
    run_service(
        lambda metrics: Broker(conf, metrics=metrics, on_ready=tell_ready),
        expected=(StoreError, MetadataError, ReplicationError),
        metrics_port=conf.broker.metrics_port,
        metrics_host=conf.broker.bind_address,
    )


def tell_ready(running: Broker) -> None:
    gc.collect()
    gc.freeze()  # what exists now lives as long as the process; later collections need not look at it
    settings = running.conf.broker
    ready(f"twinlog broker {settings.broker_name} ready on {running.address} ({settings.broker_role})")
