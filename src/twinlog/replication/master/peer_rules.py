"""Which peers may read the log and be counted: those that proved the secret, and those whose address is allowed.

| haSharedSecret | haReplicasFrom | a peer that proved the secret | any other, as a Java replica |
|----------------|----------------|-------------------------------|------------------------------|
| set            | -              | yes                           | no                           |
| set            | set            | yes                           | if its address is listed     |
| -              | set            |                               | if its address is listed     |
| -              | -              |                               | yes, as in Java              |
"""

from __future__ import annotations

from twinlog.base.address_list import address_list
from twinlog.settings.replication import ReplicationSettings


def peer_refusal(
    settings: ReplicationSettings, host: str, *, is_proven: bool = False, has_accounts: bool = False
) -> str | None:
    """Why a peer gets nothing of this broker's log; None when it may have it.

    With accounts, a request that was signed by a super account counts as proven.
    """
    if is_proven:
        return None
    listed = address_list(settings.replicas_from)
    if host in listed:
        return None
    if settings.shared_secret is not None:
        return (
            f"{host} has not proven haSharedSecret; give this replica the master's secret, or for a Java replica "
            "add its address to haReplicasFrom of the master"
        )
    if listed or has_accounts:
        return f"{host} is not in haReplicasFrom of the master; add it there if it is a replica"
    return None
