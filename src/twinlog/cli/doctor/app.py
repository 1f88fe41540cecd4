"""`twinlog doctor`: checks a broker's configuration and machine, and the cluster around it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from twinlog.base.addresses import split_addresses
from twinlog.cli.doctor import cluster, machine
from twinlog.cli.doctor.findings import Finding, exit_status, report_of
from twinlog.cli.shared.connecting import DEFAULT_NAME_SERVER, Connection, run_client, with_connection
from twinlog.cli.shared.report import show
from twinlog.settings.broker_conf import BrokerConf
from twinlog.store.lock import is_locked


def doctor(
    connection: Connection,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Check this broker.conf and this machine.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Say what is wrong and what to do. The exit status is 1 for an error, else 0; nothing is changed."""
    findings: list[Finding] = []

    async def run() -> None:
        conf = None
        if config is not None:
            conf, found = machine.check_configuration(config)
            findings.extend(found)
        if conf is not None:
            findings.extend(check_machine(conf))
        await _check_cluster(conf, connection, is_asked=config is None, findings=findings)
        show(report_of(findings), sys.stdout, as_json=as_json)

    status = run_client("doctor", run())
    raise typer.Exit(status or exit_status(findings, strict=strict))


# Without -n the configuration file names the name servers.
doctor_command = with_connection(doctor, default="")


def check_machine(conf: BrokerConf) -> list[Finding]:
    """Everything that can be checked without asking others."""
    is_running = is_locked(Path(conf.store.root_dir))
    return [
        *machine.check_address(conf),
        *machine.check_access(conf),
        *machine.check_ports(conf, is_running=is_running),
        *machine.check_disk(conf),
        *machine.check_store(conf, is_running=is_running),
    ]


async def _check_cluster(
    conf: BrokerConf | None, connection: Connection, *, is_asked: bool, findings: list[Finding]
) -> None:
    given = connection.name_servers or (conf.broker.namesrv_addr if conf is not None else None)
    addresses = split_addresses(given or (DEFAULT_NAME_SERVER if is_asked else ""))
    if addresses:
        options = connection.options()
        runs = conf is None or is_locked(Path(conf.store.root_dir))
        groups, found = await cluster.check_name_servers(addresses, options, brokers_expected=runs)
        findings.extend(found)
        if conf is not None:
            groups = [one for one in groups if one.name == conf.broker.broker_name]
        for group in groups:
            findings.extend(cluster.judge_group(group))
        findings.extend(await cluster.check_clocks(groups, addresses[0], options))
    if conf is not None and conf.failover.etcd is not None:
        findings.extend(await cluster.check_etcd(conf.failover, conf.broker.cluster_name, conf.broker.broker_name))
