"""What the command line decides about the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.base.address_list import is_loopback
from twinlog.base.addresses import address_text
from twinlog.client import ClientError, ClientOptions
from twinlog.settings.failover import FailoverSettings

DEFAULT_PORT = 8088
SESSION_IDLE_MS = 60 * 60 * 1000
SESSION_MS_MAX = 12 * 60 * 60 * 1000


class DashboardRefused(ClientError):
    """The dashboard does not start; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    name_servers: str
    options: ClientOptions = field(default_factory=ClientOptions)
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    certificate: Path | None = None  # of the page itself
    certificate_key: Path | None = None
    failover: FailoverSettings | None = None  # the etcd with the history of automatic failover
    pipelines: Sequence[str] = ()  # directories of archives and synchronisations
    poll_s: float = 2.0
    session_idle_ms: int = SESSION_IDLE_MS
    session_ms_max: int = SESSION_MS_MAX

    @property
    def is_local(self) -> bool:
        return self.host == "localhost" or is_loopback(self.host)

    @property
    def scheme(self) -> str:
        return "https" if self.certificate is not None else "http"

    def url(self, port: int) -> str:
        return f"{self.scheme}://{address_text(self.host, port)}/"


def check_exposure(settings: DashboardSettings, needs_login: bool | None) -> str | None:
    """A warning for the operator; DashboardRefused for a page that lets strangers administer the cluster.

    `needs_login`: whether the brokers use accounts; None if no broker answered.
    """
    if settings.is_local:
        return None
    where = f"--host {settings.host}"
    if settings.options.credentials is not None and not settings.read_only:
        raise DashboardRefused(
            f"{where}: everyone who reaches the page would act as {settings.options.credentials.access_key}. Leave the "
            "account out, so that each person signs in with an account of their own, or add --read-only"
        )
    if needs_login is None and not settings.read_only:
        raise DashboardRefused(
            f"{where}: no broker of {settings.name_servers} answers, so it is not known whether accounts are in use. "
            "Start the brokers first, or add --read-only"
        )
    if not needs_login and not settings.read_only:
        raise DashboardRefused(
            f"{where}: the brokers use no accounts, so everyone who reaches the page could delete topics. Add "
            "--read-only, or set up accounts (docs/accounts.md), or stay on 127.0.0.1 and use an SSH tunnel"
        )
    if settings.certificate is None and needs_login:
        return f"{where}: secrets of accounts travel unencrypted; give --https-cert and --https-key"
    return None if needs_login else f"{where}: everyone who reaches the page sees topics, groups and messages"
