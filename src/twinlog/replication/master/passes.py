"""Passes: how the HA port recognises a Twinlog replica that introduced itself on the remoting port before.

A pass is valid once, for a short time, and as long as the connection stays open on which it was issued. With
haSharedSecret the replica sends another number than the one it got, which only a peer with the secret can compute.
Java replicas have none.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from twinlog.replication.errors import JoinRefused
from twinlog.replication.hello import HelloHeader
from twinlog.replication.secret import ha_number

PASS_VALID_MS = 60_000
PASSES_MAX = 1000  # issued and not yet redeemed


@dataclass(frozen=True, slots=True)
class PassHolder:
    """The replica that a pass was issued to."""

    identity: str
    broker_id: int
    observer: bool
    whole_history: bool
    issued_ms: int


class Passes:
    """Passes that were issued. Invariant: one broker id belongs to one instance while that is connected."""

    def __init__(self) -> None:
        self._holders: dict[int, PassHolder] = {}
        self._connected: dict[int, tuple[str, int]] = {}  # broker id -> identity, connections

    def issue(
        self, hello: HelloHeader, broker_name: str, cluster_name: str, now_ms: int, secret: str | None = None
    ) -> int:
        """A pass for this replica; JoinRefused names what does not fit."""
        instance, broker_id = self._check(hello, broker_name, cluster_name)
        self._holders = {n: holder for n, holder in self._holders.items() if now_ms - holder.issued_ms < PASS_VALID_MS}
        while len(self._holders) >= PASSES_MAX:  # a replica that asks so often does not use its passes
            del self._holders[next(iter(self._holders))]
        number = secrets.randbits(61) + 1
        holder = PassHolder(instance, broker_id, hello.observer, hello.whole_history, now_ms)
        self._holders[ha_number(secret, number)] = holder
        return number

    def withdraw(self, number: int, secret: str | None = None) -> None:
        """The replica that a pass was issued to has gone."""
        self._holders.pop(ha_number(secret, number), None)

    def redeem(self, number: int, now_ms: int) -> PassHolder:
        """The holder of a pass that was sent to the HA port; the pass is used up by this."""
        holder = self._holders.pop(number, None)
        if holder is None or now_ms - holder.issued_ms >= PASS_VALID_MS:
            raise JoinRefused("the pass is unknown, used or too old; the replica gets a new one when it reconnects")
        if not holder.observer:
            identity, count = self._connected.get(holder.broker_id, (holder.identity, 0))
            if identity != holder.identity:
                raise JoinRefused(f"another broker with brokerId={holder.broker_id} connected first")
            self._connected[holder.broker_id] = (identity, count + 1)
        return holder

    def forget_all(self) -> None:
        """This broker is no longer the master whose log the holders have compared with their own."""
        self._holders.clear()

    def release(self, holder: PassHolder) -> None:
        """A connection of this holder has closed."""
        identity, count = self._connected.get(holder.broker_id, ("", 0))
        if holder.observer or identity != holder.identity:
            return
        if count > 1:
            self._connected[holder.broker_id] = (identity, count - 1)
        else:
            del self._connected[holder.broker_id]

    def _check(self, hello: HelloHeader, broker_name: str, cluster_name: str) -> tuple[str, int]:
        """(instance, broker id) of a replica that may connect."""
        if hello.broker_name != broker_name or hello.cluster_name != cluster_name:
            raise JoinRefused(
                f"replica of {hello.cluster_name}/{hello.broker_name} asked {cluster_name}/{broker_name} for its log; "
                "check brokerName and brokerClusterName"
            )
        if not hello.instance or hello.broker_id is None or (hello.broker_id <= 0 and not hello.observer):
            raise JoinRefused(f"a replica has a brokerId above 0 and an instance id, not {hello.broker_id}")
        if hello.observer:
            return hello.instance, hello.broker_id
        identity, _ = self._connected.get(hello.broker_id, (hello.instance, 0))
        if identity != hello.instance:
            raise JoinRefused(
                f"another broker with brokerId={hello.broker_id} is already connected; give each replica of "
                f"{broker_name} an id of its own"
            )
        same = next((n for n, (one, _) in self._connected.items() if one == hello.instance), hello.broker_id)
        if same != hello.broker_id:
            raise JoinRefused(
                f"the store of brokerId={hello.broker_id} is a copy of the one of brokerId={same}, which is "
                "connected; delete config/twinlogInstance in the copy, so that both count as replicas"
            )
        return hello.instance, hello.broker_id
