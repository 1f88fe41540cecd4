"""Groups of brokers with automatic failover, and their history, as etcd has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlog.client import ClientError
from twinlog.failover.group_keys import GroupKeys, open_group
from twinlog.failover.records import Entry, History, Keys, Member, decode_record, history_name, read_keys
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.failover import FailoverSettings

_TIMEOUT_S = 3.0
_HISTORY = history_name(0).removesuffix("0")


class FailoverRefused(ClientError):
    """The command changed nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: the etcd, and the group if it is known."""

    settings: FailoverSettings
    cluster: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One group of brokers, as etcd has it at one revision."""

    cluster: str
    name: str
    keys: Keys
    history: Sequence[History]
    group: GroupKeys


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Where etcd is, and how it lets us in; a broker's configuration file may say it instead."""

    endpoints: str
    ca: str | None = None  # switches TLS on
    user: str | None = None
    password: str | None = None

    def settings(self) -> FailoverSettings:
        if bool(self.user) != bool(self.password):
            raise FailoverRefused("--etcd-user and --etcd-password go together: give both or none")
        if self.ca is not None and not Path(self.ca).is_file():
            raise FailoverRefused(f"--tls-ca {self.ca}: there is no such file")
        return FailoverSettings(etcd=self.endpoints, etcd_ca=self.ca, etcd_user=self.user, etcd_password=self.password)


def place_of(config: Path | None, etcd: EtcdAccess | None, name: str | None) -> Place:
    """From a broker's configuration file, or from an address of etcd; `name` is the group that is asked for."""
    if config is None:
        assert etcd is not None
        return Place(etcd.settings(), None, name)
    conf = load_broker_conf(config)
    if conf.failover.etcd is None:
        raise FailoverRefused(f"{config} has no failoverEtcd: this broker has no automatic failover")
    return Place(conf.failover, conf.broker.cluster_name, name or conf.broker.broker_name)


async def find_groups(place: Place) -> list[Found]:
    """Every group below the prefix, or only the one of `place`; all of one read."""
    settings = place.settings
    etcd = open_group(settings, "", "", timeout_s=_TIMEOUT_S).etcd
    rows = (await etcd.read_prefix(f"{settings.etcd_prefix}/")).rows
    revision = max((row.mod_revision for row in rows.values()), default=0)
    entries: dict[tuple[str, str], list[Entry]] = {}
    for key, row in rows.items():
        cluster, name, rest = [*key.removeprefix(f"{settings.etcd_prefix}/").split("/", 2), "", ""][:3]
        entry = Entry(rest, row.value, row.create_revision, row.mod_revision, row.lease)
        entries.setdefault((cluster, name), []).append(entry)
    return [
        Found(cluster, name, read_keys(found, revision), _history(found), GroupKeys(etcd, settings.etcd_prefix, *at))
        for at, found in sorted(entries.items())
        for cluster, name in [at]
        if place.cluster in (None, cluster) and place.name in (None, name)
    ]


async def find_group(place: Place) -> Found:
    """The only group that fits; FailoverRefused when there is none, or a choice."""
    found = await find_groups(place)
    if not found:
        what = f"no group {place.name}" if place.name else "no group of brokers"
        raise FailoverRefused(
            f"etcd has {what} below {place.settings.etcd_prefix}/; start its brokers with failoverEtcd="
            f"{place.settings.etcd}"
        )
    if len(found) > 1:
        raise FailoverRefused(f"which group? name one of: {', '.join(one.name for one in found)}")
    return found[0]


def find_member(found: Found, text: str) -> tuple[str, Member]:
    """(id, record) of the running member with this address, brokerId, or beginning of its id."""
    members = found.keys.members
    fits = [
        (member, record)
        for member, record in members.items()
        if text in (record.address, str(record.broker_id)) or (len(text) >= 6 and member.startswith(text))
    ]
    if len(fits) != 1:
        running = ", ".join(f"{one.address} (brokerId {one.broker_id})" for one in members.values()) or "none"
        raise FailoverRefused(f"no member {text} of {found.name} runs; the running ones are: {running}")
    return fits[0]


def _history(entries: Sequence[Entry]) -> list[History]:
    found = [decode_record(History, one.name, one.value) for one in entries if one.name.startswith(_HISTORY)]
    return sorted(found, key=lambda one: one.epoch, reverse=True)
