"""What the handlers of one name server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.nameserver.kv_config import KvConfig
from twinlog.nameserver.registration import MinBrokerIdNotice
from twinlog.nameserver.route_table import RouteTable
from twinlog.net.limits import Limits
from twinlog.net.local_admin import LocalAdmin
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.nameserver_conf import NameServerConf


@dataclass(slots=True, eq=False)
class NameServerContext:
    """Tables and settings in use. `conf` may be replaced while the name server runs: read it where it is used."""

    conf: NameServerConf
    kv: KvConfig
    clock_ms: Callable[[], int]
    notify: Callable[[MinBrokerIdNotice], None]
    table: RouteTable = field(default_factory=RouteTable)
    limits: Limits = field(default_factory=Limits)
    started_ms: int = field(init=False)
    local_admin: LocalAdmin = field(init=False)

    def __post_init__(self) -> None:
        self.started_ms = self.clock_ms()
        self.local_admin = LocalAdmin(self.conf.net.admin_from, self.limits, "namesrv.conf")

    @property
    def settings(self) -> NameServerSettings:
        return self.conf.nameserver
