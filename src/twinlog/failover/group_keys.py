"""The keys of one group of brokers in etcd: read as one, written by the transactions of the steps."""

from __future__ import annotations

import ssl
from dataclasses import replace

from twinlog.failover.etcd import Etcd
from twinlog.failover.records import HISTORY, Entry, History, Keys, decode_record, read_keys
from twinlog.failover.transactions import Transaction
from twinlog.settings.errors import SettingsError
from twinlog.settings.failover import FailoverSettings


class GroupKeys:
    """Everything below PREFIX/CLUSTER/BROKERNAME/. EtcdError and RecordBroken are expected of every call."""

    def __init__(self, etcd: Etcd, prefix: str, cluster_name: str, broker_name: str) -> None:
        self.etcd = etcd
        self._prefix = f"{prefix}/{cluster_name}/{broker_name}/"

    async def entries(self) -> tuple[list[Entry], int]:
        """(every key with its name relative to the group, the revision of the read)."""
        found = await self.etcd.read_prefix(self._prefix)
        entries = [
            Entry(row.key.removeprefix(self._prefix), row.value, row.create_revision, row.mod_revision, row.lease)
            for row in found.rows.values()
        ]
        return entries, found.revision

    async def read(self) -> Keys:
        """All keys, at one revision."""
        return read_keys(*await self.entries())

    async def history(self) -> dict[str, tuple[History, int]]:
        """Each record of the history by the name of its key, with its revision."""
        entries, _ = await self.entries()
        found = [one for one in entries if one.name.startswith(HISTORY)]
        return {one.name: (decode_record(History, one.name, one.value), one.changed) for one in found}

    async def put(self, name: str, value: bytes, *, lease: int = 0) -> None:
        await self.etcd.put(self._prefix + name, value, lease=lease)

    async def transact(self, wanted: Transaction) -> int | None:
        """The revision of the writes; None when a comparison failed, and nothing was written."""
        conditions = [replace(one, key=self._prefix + one.key) for one in wanted.compares]
        writes = [replace(one, key=self._prefix + one.key) for one in wanted.writes]
        result = await self.etcd.transact(conditions, writes)
        return result.revision if result.succeeded else None


def open_group(settings: FailoverSettings, cluster_name: str, broker_name: str, *, timeout_s: float = 1.0) -> GroupKeys:
    """The keys of this group in the etcd that the settings name; nothing is connected yet."""
    tls = None
    if settings.etcd_ca is not None:
        try:
            tls = ssl.create_default_context(cafile=settings.etcd_ca)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"failoverEtcdCa={settings.etcd_ca} cannot be used: {error}") from error
    etcd = Etcd(
        settings.endpoints, timeout_s=timeout_s, user=settings.etcd_user, password=settings.etcd_password, tls=tls
    )
    return GroupKeys(etcd, settings.etcd_prefix, cluster_name, broker_name)
