"""Checks of one configuration file and of the machine that it is for: addresses, accounts, ports, disk, store."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from twinlog.base.address_list import address_list, is_loopback
from twinlog.base.addresses import VIP_PORT_BELOW, parse_address, split_addresses
from twinlog.broker.replication.epoch_file import EpochFile
from twinlog.cli.doctor.findings import Finding, error, ok, warning
from twinlog.replication.errors import ReplicationError
from twinlog.settings.broker_conf import BrokerConf, load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.store.errors import StoreError
from twinlog.store.offline.store_files import StoreFiles
from twinlog.wire.errors import WireError

_CONNECT_S_MAX = 1.0
_SEGMENTS_FREE_MIN = 3  # a broker makes the next segment before it needs it


def check_configuration(path: Path) -> tuple[BrokerConf | None, list[Finding]]:
    """The configuration, if it can be read, and what is wrong with it."""
    try:
        conf = load_broker_conf(path)
    except (SettingsError, OSError) as problem:
        return None, [error("configuration", str(problem), "correct the file; docs/configuration.md has all keys")]
    found = [warning("configuration", str(one), "correct or remove the key") for one in conf.warnings]
    if not conf.broker.namesrv_addr:
        text = f"{path} has no namesrvAddr: no client finds this broker"
        found.append(warning("configuration", text, "set namesrvAddr=host:port;host:port"))
    return conf, found or [ok("configuration", f"{path} is valid")]


def check_address(conf: BrokerConf) -> Iterator[Finding]:
    """Whether others can reach the address that this broker registers."""
    host = conf.broker.broker_ip1
    todo = "set brokerIP1 to the address under which clients and replicas reach this machine"
    try:
        resolved = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0]
        address = ipaddress.ip_address(str(resolved).partition("%")[0])
    except (OSError, ValueError) as problem:
        yield error("address", f"brokerIP1={host} cannot be resolved: {problem}", todo)
        return
    if address.is_unspecified:
        yield error("address", f"brokerIP1={host} means any address: clients cannot connect to it", todo)
    elif address.is_loopback and not _all_loopback(conf.broker.namesrv_addr or ""):
        text = f"brokerIP1={host} is reachable from this machine only, but the name servers are elsewhere"
        yield error("address", text, todo)
    elif not _is_own(str(address)):
        text = f"brokerIP1={host} is not an address of this machine"
        yield warning("address", text, f"{todo}; ignore this if a NAT or a proxy has that address")
    else:
        yield ok("address", f"clients are sent to {conf.broker.address}")


def check_access(conf: BrokerConf) -> Iterator[Finding]:
    """What a stranger can do who reaches this broker."""
    todo = "set authenticationEnabled=true, or bindAddress=127.0.0.1; docs/security.md has more"
    everywhere = f"bindAddress={conf.broker.bind_address}"
    if conf.access.authentication or conf.access.plain_acl:
        yield ok("accounts", "every request must be signed by an account")
    elif conf.would_give_away:
        text = "this replica has an account for its master and checks none itself: it serves this machine only"
        yield warning("accounts", text, "set authenticationEnabled=true or aclEnable=true, as on the master")
    elif is_loopback(conf.broker.bind_address):
        yield ok("accounts", f"none, and {everywhere}: only this machine can connect")
    elif address_list(conf.net.admin_from).has_all:
        yield error("accounts", "anybody can administrate: there are no accounts, and adminRequestsFrom=*", todo)
    else:
        yield warning("accounts", f"none, and {everywhere}: who can connect can read and write all topics", todo)


def check_ports(conf: BrokerConf, *, is_running: bool) -> Iterator[Finding]:
    """Whether the ports are free, or answer if the broker runs."""
    port, host = conf.broker.listen_port, conf.broker.bind_address
    wanted = {
        "listenPort": port,
        f"listenPort - {VIP_PORT_BELOW}": port - VIP_PORT_BELOW,
        "haListenPort": conf.replication.listen_port,
    }
    for key, number in wanted.items():
        if number <= 0:
            continue
        problem = _connect_problem(host, number) if is_running else _bind_problem(host, number)
        if problem is None:
            continue
        text = f"port {number} ({key}) {'does not answer, although the broker runs' if is_running else 'is not free'}"
        todo = f"look for a firewall, or at the broker's log ({problem})"
        if not is_running:
            todo = f"stop the program that uses it (`ss -ltnp 'sport = :{number}'`), or set {key.split()[0]}: {problem}"
        yield error("ports", text, todo)
        return
    state = "answer" if is_running else "are free"
    yield ok("ports", f"{', '.join(str(one) for one in wanted.values())} {state}")


def check_disk(conf: BrokerConf, used_percent: float | None = None) -> Iterator[Finding]:
    """Whether there is space for messages, and the directories can be written."""
    store = conf.store
    for directory in {store.root_dir: None, **dict.fromkeys(store.commit_log_dirs)}:
        place = _existing(Path(directory))
        if not os.access(place, os.W_OK | os.X_OK):
            yield error("disk", f"{place} cannot be written by this user", f"chown or chmod it, or move {directory}")
            continue
        usage = shutil.disk_usage(place)
        used = 100 * (usage.total - usage.free) / usage.total if used_percent is None else used_percent
        needed = _SEGMENTS_FREE_MIN * store.segment_bytes
        shown = f"{directory}: {used:.0f} % used, {usage.free / 2**30:.1f} GiB free"
        todo = "make room, or keep messages for a shorter time (fileReservedTime)"
        if used >= store.disk_percent_full:
            yield error("disk", f"{shown}; sends are refused from {store.disk_percent_full} % on", todo)
        elif usage.free < needed:
            text = f"{shown}; {_SEGMENTS_FREE_MIN} segments need {needed / 2**30:.1f} GiB"
            yield error("disk", text, f"{todo}, or smaller segments (mappedFileSizeCommitLog)")
        elif used >= store.disk_percent_max:
            text = f"{shown}; from {store.disk_percent_max} % on expired messages are deleted at any hour"
            yield warning("disk", text, todo)
        else:
            yield ok("disk", shown)


def check_store(conf: BrokerConf, *, is_running: bool) -> Iterator[Finding]:
    """Whether the store can be opened; its records are read by `twinlog store verify` only."""
    root, todo = Path(conf.store.root_dir), f"see `twinlog store verify {conf.store.root_dir}`"
    if not any(any(Path(one).glob("[0-9]*")) for one in conf.store.commit_log_dirs):
        yield ok("store", f"{root} is empty")
        return
    try:
        EpochFile(root, conf.broker.broker_name, conf.store.modes)
        with StoreFiles(root, commit_log_dirs=[Path(one) for one in conf.store.commit_log_dirs]) as files:
            log, was_aborted = files.commit_log, files.was_aborted
            start, end = log.log_start, log.log_end
    except (StoreError, ReplicationError, WireError, OSError, ValueError) as problem:
        yield error("store", str(problem), todo)
        return
    if was_aborted and not is_running:
        text = f"{root} was not closed cleanly: the next start recovers it"
        yield warning(
            "store", text, f"start the broker; before that, {todo.removeprefix('see ')} shows what is damaged"
        )
    else:
        state = "in use by a running broker" if is_running else "closed cleanly"
        yield ok("store", f"{root} holds {start} to {end}, {state}")
    aside = [path for path in (root / "set-aside").glob("*/tail-*") if path.is_file()]
    if aside:
        text = f"{len(aside)} tails were set aside in {root / 'set-aside'}: messages that only this broker had"
        yield warning("store", text, f"read them with `twinlog store dump {aside[0]}`, send them with `store resend`")


def _all_loopback(name_servers: str) -> bool:
    hosts = [parse_address(one).host for one in split_addresses(name_servers)]
    return all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)


def _is_own(host: str) -> bool:
    return _bind_problem(host, 0) is None


def _bind_problem(host: str, port: int) -> str | None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
            if port:
                one.listen(1)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _connect_problem(host: str, port: int) -> str | None:
    try:
        target = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host
        socket.create_connection((target, port), timeout=_CONNECT_S_MAX).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.is_dir())
