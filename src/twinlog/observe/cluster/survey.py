"""Rounds of questions to a whole cluster, which remember who was there before.

A broker that stops loses its registration at once. It must not just disappear: it stays in the view, and is shown as
gone, until it is back, another one has its id, or somebody forgets it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from twinlog.client import Admin
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.observe.cluster.broker_groups import Group, Member, ask_groups, registered_groups
from twinlog.observe.cluster.cluster_view import ClusterView, cluster_view

REQUEST_MS_MAX = 2_500  # a broker that answers later counts as silent in this round
CONNECT_MS_MAX = 2_000
FORMER_MASTER = -1  # the id in views of a master that is gone and replaced
_ASK_KIND_AGAIN_ROUNDS = 30
_REMEMBERED_MAX = 2_000


class Survey:
    """Asks all brokers, again and again; `groups` has the answers of the last round."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._known: dict[str, tuple[str, str, int]] = {}  # address -> (cluster, broker name, last id)
        self._java: set[str] = set()  # saves them a question that they do not know
        self._rounds = 0
        self.groups: Sequence[Group] = ()

    async def round(self, now_ms: int) -> ClusterView:
        """Ask everybody; a failure to reach the name servers is part of the view."""
        error = ""
        if self._rounds % _ASK_KIND_AGAIN_ROUNDS == 0:
            self._java.clear()
        self._rounds += 1
        try:
            groups = await registered_groups(self._admin)
        except REQUEST_FAILURES as problem:
            groups, error = [], str(problem)
        gone = self._add_known(groups, all_gone=not error)
        await ask_groups(self._admin, groups, with_runtime=True, java=frozenset(self._java))
        self._java.update(one.address for group in groups for one in group.members if one.kind == "java")
        self.groups = groups
        return cluster_view(groups, now_ms, gone, error)

    def forget(self, address: str) -> None:
        """Leave a broker out that is gone; one that is registered is back in the next round."""
        self._known.pop(address, None)

    def _add_known(self, groups: list[Group], *, all_gone: bool) -> set[str]:
        """Add the brokers of before to `groups`; the addresses of those that are gone."""
        registered = {member.address for group in groups for member in group.members}
        for group in groups:
            for member in group.members:
                self._known[member.address] = (group.cluster, group.name, member.broker_id)
        by_name = {(group.cluster, group.name): group for group in groups}
        gone = set[str]()
        for address, (cluster, name, broker_id) in list(self._known.items()):
            if address in registered:
                continue
            group = by_name.get((cluster, name))
            if group is None:
                group = by_name[cluster, name] = Group(cluster, name, [])
                groups.append(group)
            taken = any(one.broker_id == broker_id for one in group.members)
            if taken and broker_id != 0:
                del self._known[address]
                continue
            group.members.append(Member(FORMER_MASTER if taken else broker_id, address))
            gone.add(address)
        while len(self._known) > _REMEMBERED_MAX:
            self._known.pop(next(iter(self._known)))
        for at, group in enumerate(groups):
            ordered = sorted(group.members, key=lambda one: one.broker_id % (1 << 31))
            groups[at] = dataclasses.replace(group, members=ordered)
        groups.sort(key=lambda one: (one.cluster, one.name))
        return gone if all_gone else set()
