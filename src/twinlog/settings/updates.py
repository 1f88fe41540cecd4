"""Settings changed at run time, by a properties text in an admin request.

Only keys marked `updatable` may change: an admin request must not move a store or open another port. A key with the
value that it has already is not a change, so a whole dump with one edited line works.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twinlog.settings.broker_conf import PARTS, BrokerConf, derive_values, load_tls_file
from twinlog.settings.conf import effective_properties, keyed_fields, load_together, spellings
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.properties import Entry, format_properties, parse_properties

T = TypeVar("T")
BLACK_LIST_REMARK = "Can not update config in black list."
_BROKER_BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath", "rocketmqHome"})
_SOURCE = "update"
_TEXT_LENGTH_MAX = 256 * 1024  # ten times all settings there are
_IGNORED_SHOWN_MAX = 10


class UpdateRefused(SettingsError):
    """A key that no admin request may change; the answer is NO_PERMISSION with this text."""


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    settings: T
    changed: Mapping[str, str]  # key -> new value, only where the value differs
    ignored: tuple[str, ...]  # keys that nothing reads
    warnings: tuple[str, ...] = ()  # about keys that are read, one for each key

    @property
    def ignored_text(self) -> str:
        """The ignored keys, for a log line or an answer."""
        shown = [key[:80] for key in self.ignored[:_IGNORED_SHOWN_MAX]]
        more = len(self.ignored) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")


def plan_broker_update(conf: BrokerConf, text: str) -> Update[BrokerConf]:
    """The settings after the update; UpdateRefused or SettingsError, and then nothing changes."""
    parts = (conf.broker, conf.store, conf.replication, conf.failover, conf.net, conf.net.tls, conf.access)
    entries = _read(text, _BROKER_BLACK_LIST)
    base = dict(zip(PARTS, parts, strict=True))
    (broker, store, replication, _, net, tls, _), ignored, warnings = _apply(PARTS, base, entries)
    given = frozenset(effective_properties(*parts))  # all are derived already; only roles and ids can conflict anew
    broker, store, replication = derive_values(broker, store, replication, given, source=_SOURCE)
    if conf.failover.etcd is not None and replication.master_address is not None:
        raise SettingsError(f"{_SOURCE}: haMasterAddress with failoverEtcd; leave it out, etcd knows the master")
    tls, _ = load_tls_file(tls)
    settings = dataclasses.replace(
        conf, broker=broker, store=store, replication=replication, net=dataclasses.replace(net, tls=tls)
    )
    return Update(settings, _changes(conf.properties(), settings.properties()), ignored, warnings)


@dataclass(frozen=True, slots=True)
class RoleWanted:
    role: str
    broker_id: int | None  # None: not given


def split_role(text: str, conf: BrokerConf) -> tuple[RoleWanted | None, str]:
    """The role that an update asks for, None when it is the present one, and the update without it."""
    entries = _parsed(text)
    given = {entry.key: entry.value.strip() for entry in entries}
    role = given.pop("brokerRole", conf.broker.broker_role)
    broker_id = given.pop("brokerId", "")
    rest = format_properties(given)
    if broker_id and not broker_id.lstrip("-").isdigit():
        raise SettingsError(
            f"{_SOURCE}: brokerId={broker_id} is not a number; write 0 for a master, more for a replica"
        )
    number = int(broker_id) if broker_id else None
    if role != "SLAVE":
        number = None  # Java: a master's id is 0 whatever is given
    if role == conf.broker.broker_role and number in (None, conf.broker.broker_id):
        return None, rest
    return RoleWanted(role, number), rest


def plan_nameserver_update(settings: NameServerSettings, text: str) -> Update[NameServerSettings]:
    """As for a broker, with the black list of the name server."""
    entries = _read(text, settings.refused_keys)
    (updated,), ignored, warnings = _apply((NameServerSettings,), {NameServerSettings: settings}, entries)
    changed = _changes(effective_properties(settings), effective_properties(updated))
    return Update(updated, changed, ignored, warnings)


def updatable_keys(*classes: type) -> frozenset[str]:
    """Every key that a request may change."""
    return frozenset(key.name for cls in classes for _, key, _ in keyed_fields(cls) if key.updatable)


def _parsed(text: str) -> list[Entry]:
    if len(text) > _TEXT_LENGTH_MAX:
        raise SettingsError(f"{_SOURCE}: {len(text)} characters are too many; send at most {_TEXT_LENGTH_MAX}")
    return parse_properties(text, source=_SOURCE)


def _read(text: str, black_list: Iterable[str]) -> list[Entry]:
    entries = _parsed(text)
    if any(entry.key in black_list for entry in entries):
        raise UpdateRefused(BLACK_LIST_REMARK)
    return entries


def _apply(
    classes: tuple[type, ...], base: dict[type, Any], entries: list[Entry]
) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """The settings, the keys that nothing reads, and the warnings about others."""
    # To find the likely spelling of an unknown key takes milliseconds, and a request may hold very many.
    loaded, warnings = load_together(classes, entries, source=_SOURCE, base=base, explain=lambda key, _: key)
    names = {spelling: name for cls in classes for spelling, name in spellings(cls).items()}
    changed = _changes(effective_properties(*base.values()), effective_properties(*loaded))
    if fixed := sorted(changed.keys() - updatable_keys(*classes)):
        listed = ", ".join(f"{key}={changed[key]}" for key in fixed)
        raise UpdateRefused(f"{listed}: only a restart changes this; write it into the configuration file")
    ignored = tuple(warning.key for warning in warnings if warning.key not in names)
    odd = {warning.key: str(warning) for warning in warnings if warning.key in names}
    return loaded, ignored, tuple(odd.values())


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The values that differ; empty where one is no longer given."""
    gone = dict.fromkeys(before.keys() - after.keys(), "")
    return gone | {key: value for key, value in after.items() if before.get(key) != value}
