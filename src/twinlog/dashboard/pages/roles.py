"""How pages call a broker's role, and where its group is shown."""

from __future__ import annotations

from urllib.parse import quote

from twinlog.observe.cluster.survey import FORMER_MASTER


def role_text(broker_id: int, role: str) -> str:
    """`master, sync`, `replica 1`."""
    if broker_id == FORMER_MASTER:
        return "former master"
    if broker_id != 0:
        return f"replica {broker_id}"
    kind = {"SYNC_MASTER": ", sync", "ASYNC_MASTER": ", async"}.get(role, "")
    return f"master{kind}"


def group_link(cluster: str, name: str, replica: str | None = None) -> str:
    chosen = f"&replica={quote(replica)}" if replica else ""
    return f"/replication?group={quote(f'{cluster}/{name}')}{chosen}"
