"""How the synchronisation of each kind of metadata went, and when a round is skipped."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinlog.metadata.errors import MetadataError
from twinlog.wire.bodies import DataVersion


class MasterRefused(MetadataError):
    """The master answered a metadata request with an error."""

    def __init__(self, kind: str, code: int, remark: str | None) -> None:
        super().__init__(f"the master refused a request for {kind}: code {code}, {remark}")
        self.code = code


@dataclass(slots=True)
class KindStatus:
    """Successes and failures of one kind."""

    synced_ms: int = 0  # last success
    failed_ms: int = 0
    failures: int = 0
    changes: int = 0  # syncs that changed something here
    bytes_received: int = 0
    error: str = ""
    version: DataVersion | None = None

    def succeeded(self, now_ms: int, version: DataVersion | None, *, changed: bool, received: int) -> None:
        self.synced_ms, self.version, self.error = now_ms, version, ""
        self.changes += changed
        self.bytes_received += received

    def failed(self, now_ms: int, error: object) -> None:
        self.failed_ms, self.error = now_ms, str(error)
        self.failures += 1


@dataclass(slots=True)
class SyncStatus:
    """What an operator sees of metadata synchronisation."""

    kinds: dict[str, KindStatus] = field(default_factory=dict[str, KindStatus])
    rounds: int = 0
    skipped: str = "no master is known yet"

    def kind(self, name: str) -> KindStatus:
        return self.kinds.setdefault(name, KindStatus())


def reason_to_skip(master_address: str | None, own_address: str) -> str | None:
    """Why no master is asked in this round; None when one is."""
    if master_address is None:
        return "no master is known yet"
    if master_address == own_address:
        return f"the master's address {master_address} is this broker's own"
    return None
