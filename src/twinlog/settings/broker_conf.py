"""broker.conf: one flat file that feeds the broker, its store, its replication and its connections."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinlog.settings.access import AccessSettings, check_access
from twinlog.settings.broker import BrokerSettings
from twinlog.settings.conf import SettingsWarning, load_settings, load_together, place, public_properties
from twinlog.settings.errors import SettingsError
from twinlog.settings.failover import FailoverSettings
from twinlog.settings.net import NetSettings, TlsSettings
from twinlog.settings.properties import Entry, parse_properties
from twinlog.settings.replication import ReplicationSettings
from twinlog.settings.store import StoreSettings

PARTS = (
    BrokerSettings,
    StoreSettings,
    ReplicationSettings,
    FailoverSettings,
    NetSettings,
    TlsSettings,
    AccessSettings,
)
_REPLICA_MEMORY_PERCENT_LESS = 10  # a replica keeps more of its memory for the transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConf:
    """Everything in broker.conf; each part of the broker gets the piece it needs."""

    broker: BrokerSettings = dataclasses.field(default_factory=BrokerSettings)
    store: StoreSettings = dataclasses.field(default_factory=StoreSettings)
    replication: ReplicationSettings = dataclasses.field(default_factory=ReplicationSettings)
    failover: FailoverSettings = dataclasses.field(default_factory=FailoverSettings)
    net: NetSettings = dataclasses.field(default_factory=NetSettings)
    access: AccessSettings = dataclasses.field(default_factory=AccessSettings)
    warnings: tuple[SettingsWarning, ...] = ()
    path: str | None = None  # of the file, None when the text came from elsewhere

    @property
    def would_give_away(self) -> bool:
        """Whether this replica checks no accounts and its master does: there is an account to ask the master with."""
        checks = self.access.authentication or self.access.plain_acl
        return self.broker.is_replica and self.broker.own_account is not None and not checks

    def properties(self) -> dict[str, str]:
        """All settings in use under their file names; passwords are left out."""
        parts = (self.broker, self.store, self.replication, self.failover, self.net, self.net.tls, self.access)
        return public_properties(*parts)


def load_broker_conf(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConf:
    """Read `path` (or `text`); `overrides` come from the command line and win over the file."""
    source = "broker.conf"
    if text is None:
        text = "" if path is None else read_text(path)
        source = os.path.basename(path) if path is not None else source
    entries = _with_defaults_and_overrides(parse_properties(text, source=str(source)), overrides, environment)
    parts, warnings = load_together(PARTS, entries, source=str(source))
    lines = {entry.key: entry.line for entry in entries}
    broker, store, replication, failover, net, tls, access = parts
    check_access(access, str(source))
    broker, store, replication = derive_values(
        broker, store, replication, frozenset(lines), source=str(source), lines=lines
    )
    if failover.etcd is not None:
        replication = _with_failover(broker, replication, frozenset(lines), str(source), lines)
    tls, tls_warnings = load_tls_file(tls)
    net = dataclasses.replace(net, tls=tls)
    given = str(path) if path is not None else None
    warnings = (*warnings, *tls_warnings)
    return BrokerConf(
        broker=broker,
        store=store,
        replication=replication,
        failover=failover,
        net=net,
        access=access,
        warnings=warnings,
        path=given,
    )


def derive_values(
    broker: BrokerSettings,
    store: StoreSettings,
    replication: ReplicationSettings,
    given: frozenset[str],
    *,
    source: str,
    lines: Mapping[str, int] | None = None,
) -> tuple[BrokerSettings, StoreSettings, ReplicationSettings]:
    """Values that depend on each other, as Java's start-up code derives them."""
    if broker.is_replica:
        if broker.broker_id <= 0:
            line = (lines or {}).get("brokerId", (lines or {}).get("brokerRole", 1))
            problem = f"brokerId={broker.broker_id} with brokerRole=SLAVE; give every replica its own id above 0"
            raise SettingsError(f"{place(source, line)}: {problem}")
        if "accessMessageInMemoryMaxRatio" not in given:
            percent = StoreSettings().memory_percent - _REPLICA_MEMORY_PERCENT_LESS
            store = dataclasses.replace(store, memory_percent=percent)
    else:
        broker = dataclasses.replace(broker, broker_id=0)  # Java: a master's id is 0 whatever the file has
    if broker.listen_port in (1, 2, 65535):
        line = (lines or {}).get("listenPort", 0)
        problem = f"listenPort={broker.listen_port} leaves no room for the ports beside it; choose 3 to 65534"
        raise SettingsError(f"{place(source, line)}: {problem}")
    if not set(store.commit_log_dirs) - set(store.read_only_dirs):
        line = (lines or {}).get("readOnlyCommitLogStorePaths", 1)
        problem = f"readOnlyCommitLogStorePaths={store.read_only_dirs_given} leaves no directory for new segments"
        raise SettingsError(f"{place(source, line)}: {problem}; name one more in storePathCommitLog")
    if "haListenPort" not in given or replication.listen_port == 0:
        # Port 0 means any free port, for both.
        port = broker.listen_port + 1 if broker.listen_port else 0
        replication = dataclasses.replace(replication, listen_port=port)
    if "brokerIP2" not in given and "brokerIP1" in given:
        broker = dataclasses.replace(broker, broker_ip2=broker.broker_ip1)
    if "registerNameServerPeriod" in given:
        clamped = min(60_000, max(10_000, broker.register_interval_ms))
        broker = dataclasses.replace(broker, register_interval_ms=clamped)
    return broker, store, replication


def _with_failover(
    broker: BrokerSettings,
    replication: ReplicationSettings,
    given: frozenset[str],
    source: str,
    lines: Mapping[str, int],
) -> ReplicationSettings:
    """What automatic failover needs: a replica with an id, no fixed master, whole logs, metadata without delay."""
    where = place(source, lines["failoverEtcd"])
    if not broker.is_replica:
        problem = f"failoverEtcd with brokerRole={broker.broker_role}; etcd decides who is master, so write"
        raise SettingsError(f"{where}: {problem} brokerRole=SLAVE and a brokerId of its own for every broker")
    if replication.master_address is not None:
        raise SettingsError(f"{where}: failoverEtcd with haMasterAddress; remove it, etcd knows the master")
    defaults: dict[str, Any] = {}
    if "haCopyWholeHistory" not in given:
        defaults["copy_whole_history"] = True
    if "slaveMetadataPush" not in given:
        defaults["metadata_pushed"] = True
    return dataclasses.replace(replication, **defaults)


def load_tls_file(tls: TlsSettings) -> tuple[TlsSettings, list[SettingsWarning]]:
    """`tls` with what its own file adds, if it names one."""
    if tls.config_file is None:
        return tls, []
    entries = parse_properties(read_text(tls.config_file), source=tls.config_file)
    _, warnings = load_settings(TlsSettings, entries, source=tls.config_file)
    (loaded,), _ = load_together((TlsSettings,), entries, source=tls.config_file, base={TlsSettings: tls})
    return loaded, warnings


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a properties file; UTF-8, or ISO-8859-1 as Java reads it."""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as problem:
        raise SettingsError(f"{path}: {problem.strerror}; check the path given with -c") from problem
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _with_defaults_and_overrides(
    entries: list[Entry], overrides: Mapping[str, str] | None, environment: Mapping[str, str] | None
) -> list[Entry]:
    given = {entry.key for entry in entries}
    names: Any = os.environ if environment is None else environment
    if "namesrvAddr" not in given and names.get("NAMESRV_ADDR"):
        entries = [*entries, Entry("namesrvAddr", names["NAMESRV_ADDR"], 0)]
    kept = [entry for entry in entries if entry.key not in (overrides or {})]
    return kept + [Entry(key, value, 0) for key, value in (overrides or {}).items()]
