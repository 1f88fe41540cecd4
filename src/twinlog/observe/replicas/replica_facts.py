"""A replica beside the master that it should follow: answers, configuration, and whether the HA port is reachable.

In: an Admin and groups of brokers. Out: ReplicaFacts, on which `diagnose_replica` decides without I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.base.addresses import AddressError, address_text, parse_address
from twinlog.client import Admin
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member, gather_groups

_CONNECT_S_MAX = 3.0
Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker, what it runs with, and what it reports."""

    member: Member
    config: Texts = field(default_factory=dict[str, str])  # without secrets; empty if this account may not see it
    runtime: Texts = field(default_factory=dict[str, str])

    @property
    def ha_address(self) -> str | None:
        """Where replicas connect, as the broker is configured."""
        port = self.config.get("haListenPort")
        try:
            host = self.config.get("brokerIP2") or parse_address(self.member.address).host
        except AddressError:
            return None
        return address_text(host, int(port)) if port and port.isdigit() else None


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    cluster: str
    name: str  # brokerName
    replica: BrokerFacts
    master: BrokerFacts | None
    lag: LagFacts | None
    is_registered: bool
    masters: tuple[str, ...]  # names that have a master at the name servers
    name_servers: str
    ha_error: str = ""  # why the master's HA port cannot be reached from here


async def gather_replica_facts(admin: Admin, broker: str | None) -> list[ReplicaFacts]:
    """All replicas; those of the name `broker`, or the one at the address `broker`."""
    info = await admin.cluster_info()
    masters = tuple(sorted(name for name, one in info.broker_addr_table.items() if 0 in one.broker_addrs))
    registered = {one for each in info.broker_addr_table.values() for one in each.broker_addrs.values()}
    is_address = broker is not None and broker not in info.broker_addr_table and ":" in broker
    groups = await gather_groups(admin, None, broker if is_address else None)
    found = list[ReplicaFacts]()
    for group in groups:
        if broker is not None and not is_address and group.name != broker:
            continue
        for replica in group.replicas:
            if not is_address or replica.address == broker:
                is_registered = replica.address in registered
                found.append(await _facts(admin, group, replica, masters, is_registered=is_registered))
    return found


async def _facts(
    admin: Admin, group: Group, replica: Member, masters: tuple[str, ...], *, is_registered: bool
) -> ReplicaFacts:
    master = None if group.master is None else await _broker(admin, group.master)
    asked = await _broker(admin, replica)
    target = replica.document.get("following", {}).get("masterHaAddress") or (master.ha_address if master else None)
    return ReplicaFacts(
        group.cluster,
        group.name,
        asked,
        master,
        group.lags.get(replica.broker_id),
        is_registered,
        masters,
        ";".join(admin.session.name_servers),
        await _reach(target) if target else "",
    )


async def _broker(admin: Admin, member: Member) -> BrokerFacts:
    config, runtime = dict[str, str](), dict[str, str]()
    if member.kind != "silent":
        with contextlib.suppress(*REQUEST_FAILURES):
            runtime = await admin.runtime_info(member.address)
        with contextlib.suppress(*REQUEST_FAILURES):
            config = await admin.broker_config(member.address)
    return BrokerFacts(member, config, runtime)


async def _reach(address: str) -> str:
    """Connect and close at once: neither Java nor Twinlog counts a peer that has said nothing."""
    try:
        target = parse_address(address)
        async with asyncio.timeout(_CONNECT_S_MAX):
            _, writer = await asyncio.open_connection(target.host, target.port)
        writer.close()
    except (OSError, AddressError, TimeoutError) as error:
        return f"{address}: {error or 'no answer'}"
    return ""
