"""Automatic failover: the etcd cluster through which the brokers of one name agree who is master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinlog.base.addresses import check_address
from twinlog.settings.conf import conf


def split_endpoints(text: str) -> list[str]:
    """The addresses in `host:port,host:port`; a semicolon separates them, too."""
    return [part.strip() for part in text.replace(";", ",").split(",") if part.strip()]


def _check_endpoints(text: str) -> str | None:
    problems = (check_address(part) for part in split_endpoints(text))
    return next((problem for problem in problems if problem), None)


def _check_prefix(text: str) -> str | None:
    if text.startswith("/") and not text.endswith("/"):
        return None
    return "does not begin with a slash, or ends with one; write for example /twinlog"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettings:
    """Who becomes master when the master is lost; see failover.md. Every broker of the group has the same values."""

    # -- etcd

    # Endpoints of etcd, host:port,host:port. Setting this switches automatic failover on: the broker starts as a
    # replica (brokerRole=SLAVE, a brokerId of its own), and etcd decides which one is master.
    etcd: str | None = conf("failoverEtcd", None, check=_check_endpoints, length_min=1)
    # Keys in etcd begin with this, followed by /brokerClusterName/brokerName/.
    etcd_prefix: str = conf("failoverEtcdPrefix", "/twinlog", check=_check_prefix)
    # User of etcd; unset: no authentication.
    etcd_user: str | None = conf("failoverEtcdUser", None, length_min=1)
    # Password of that user. It is not shown by requests.
    etcd_password: str | None = conf("failoverEtcdPassword", None)
    # File with the certificates (PEM) that etcd's certificate is checked with. Setting this switches TLS to etcd on.
    etcd_ca: str | None = conf("failoverEtcdCa", None, length_min=1)

    # -- Group

    # Seconds after which a master that does not reach etcd is replaced. It stops acknowledging a quarter of this
    # earlier.
    lease_seconds: int = conf("failoverLeaseSeconds", 4, minimum=2, maximum=600)
    # Among equally long logs the broker with the highest priority becomes master; below 0: only by a command.
    priority: int = conf("failoverPriority", 0)
    # What the master of the group is: SYNC_MASTER acknowledges a send when all in-sync replicas have it, ASYNC_MASTER
    # at once, so that a failover may lose the newest messages.
    master_role: Literal["SYNC_MASTER", "ASYNC_MASTER"] = conf("failoverMasterRole", "SYNC_MASTER")

    @property
    def endpoints(self) -> list[str]:
        return split_endpoints(self.etcd or "")
