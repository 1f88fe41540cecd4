"""How a Twinlog replica makes itself known to a Twinlog master, before it opens the HA port.

On the remoting port the replica says who it is and what its log holds; the master answers with its own
log's ends and a pass, which the replica shows as the first word on the HA port. Java peers see none of it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from twinlog.replication.errors import JoinRefused
from twinlog.replication.hello import HelloHeader

PASS_LIFE_MS = 60_000
PASSES_MAX = 1000  # given out and not shown yet


@dataclass(frozen=True, slots=True)
class PassHolder:
    """Who holds a pass."""

    identity: str
    broker_id: int
    observer: bool
    whole_history: bool
    greeted_ms: int


class Passes:
    """Passes that were given out. Invariant: one broker id belongs to one instance while that is connected."""

    def __init__(self) -> None:
        self._guests: dict[int, PassHolder] = {}
        self._connected: dict[int, tuple[str, int]] = {}  # broker id -> identity, connections

    def greet(self, hello: HelloHeader, broker_name: str, cluster_name: str, now_ms: int) -> int:
        """A pass for this replica; JoinRefused names what does not fit."""
        if hello.broker_name != broker_name or hello.cluster_name != cluster_name:
            raise JoinRefused(
                f"replica of {hello.cluster_name}/{hello.broker_name} asked {cluster_name}/{broker_name} for its log; "
                "check brokerName and brokerClusterName"
            )
        if not hello.instance or hello.broker_id is None or (hello.broker_id <= 0 and not hello.observer):
            raise JoinRefused(f"a replica has a brokerId above 0 and an instance id, not {hello.broker_id}")
        identity, _ = self._connected.get(hello.broker_id, (hello.instance, 0))
        if identity != hello.instance and not hello.observer:
            raise JoinRefused(
                f"another broker with brokerId={hello.broker_id} is already connected; give each replica of "
                f"{broker_name} an id of its own"
            )
        namesake = next((n for n, (one, _) in self._connected.items() if one == hello.instance), hello.broker_id)
        if namesake != hello.broker_id and not hello.observer:
            raise JoinRefused(
                f"the store of brokerId={hello.broker_id} is a copy of the one of brokerId={namesake}, which is "
                "connected; delete config/twinlogInstance in the copy, so that both count as replicas"
            )
        self._guests = {n: guest for n, guest in self._guests.items() if now_ms - guest.greeted_ms < PASS_LIFE_MS}
        while len(self._guests) >= PASSES_MAX:  # whoever greets so often shows none of them
            del self._guests[next(iter(self._guests))]
        number = secrets.randbits(61) + 1
        self._guests[number] = PassHolder(hello.instance, hello.broker_id, hello.observer, hello.whole_history, now_ms)
        return number

    def redeem(self, number: int, now_ms: int) -> PassHolder:
        """Who shows this pass; a pass is good once, and not for long."""
        guest = self._guests.pop(number, None)
        if guest is None or now_ms - guest.greeted_ms >= PASS_LIFE_MS:
            raise JoinRefused(f"the pass {number} is unknown or too old; the replica greets its master again")
        if not guest.observer:
            identity, count = self._connected.get(guest.broker_id, (guest.identity, 0))
            if identity != guest.identity:
                raise JoinRefused(f"another broker with brokerId={guest.broker_id} connected first")
            self._connected[guest.broker_id] = (identity, count + 1)
        return guest

    def left(self, guest: PassHolder) -> None:
        """A connection of this guest has closed."""
        identity, count = self._connected.get(guest.broker_id, ("", 0))
        if guest.observer or identity != guest.identity:
            return
        if count > 1:
            self._connected[guest.broker_id] = (identity, count - 1)
        else:
            del self._connected[guest.broker_id]
