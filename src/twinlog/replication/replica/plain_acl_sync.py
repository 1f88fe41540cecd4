"""A replica with `aclEnable` takes over the accounts of a RocketMQ 4.9 master, as a file below conf/acl.

The broker reads its files again when they change, so what arrives here counts within half a second. Other masters do
not give their plain_acl.yml away: RocketMQ 5.5 has none, and a Twinlog master never sends a secret in clear text. For
those, an operator copies the file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.atomic_file import replace_file
from twinlog.replication.errors import ReplicationError
from twinlog.replication.replica.metadata_status import MasterRefused
from twinlog.security.carried_acl import FILE_NAME, carried_text
from twinlog.security.errors import AccountsBroken
from twinlog.security.plain_files import MORE
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from twinlog.net.pool import ConnectionPool

log = get_logger(__name__)
_TIMEOUT_MS = 3000


class PlainAclSync:
    """Makes the file of carried accounts equal to the master's."""

    name = "accounts"

    def __init__(self, home: Path) -> None:
        self.path = home / MORE / FILE_NAME

    async def fetch(self, pool: ConnectionPool, master: str) -> tuple[bool, int]:
        """(whether the file changed, bytes received)."""
        answer = await pool.request(master, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}, timeout_ms=_TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            log.info("the master does not give its accounts away: copy its plain_acl.yml here", master=master)
            return False, 0
        if answer.code != ResponseCode.SUCCESS:
            raise MasterRefused(self.name, answer.code, answer.remark)
        body = answer.body or b""
        try:
            text = carried_text(body)
        except AccountsBroken as error:
            raise ReplicationError(f"accounts stay as they are: {error}") from error
        return await asyncio.to_thread(self._write, text), len(body)

    def _write(self, text: str) -> bool:
        data = text.encode()
        if self.path.exists() and self.path.read_bytes() == data:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, [data])
        log.info("the accounts of the master were written", file=str(self.path))
        return True
