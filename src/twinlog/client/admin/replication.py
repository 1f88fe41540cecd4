"""Replication of Twinlog brokers: its state, their roles, and checksums of their logs.

Java brokers do not support these requests; the calls then return None.
"""

from typing import Any

from twinlog.client.admin.calls import AdminCalls, read_json
from twinlog.client.errors import BrokerRefused
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.twinlog_codes import TwinlogCode

_ROLE_TIMEOUT_MS = 60_000  # sends that wait for a replica are answered first
_DIGEST_TIMEOUT_MS = 60_000


class AdminReplication(AdminCalls):
    async def replication_status(self, address: str) -> dict[str, Any] | None:
        """The replication state of a Twinlog broker."""
        answer = await self._ask_twinlog(address, TwinlogCode.REPLICATION_STATUS)
        return None if answer is None else read_json(answer.body)

    async def change_role(
        self, address: str, role: str, broker_id: int | None = None, *, force: bool = False, successor: str = ""
    ) -> list[str] | None:
        """Make a running broker master or replica; the names of the steps it took.

        A master without a connected replica does not step down, unless `force` is set. The replica with the store
        instance `successor`, or the nearest one, gets the rest of its log.
        """
        header = {"brokerRole": role, "brokerId": "" if broker_id is None else str(broker_id)}
        if force:
            header["force"] = "true"
        if successor:
            header["successor"] = successor
        answer = await self._ask_twinlog(address, TwinlogCode.CHANGE_ROLE, header, timeout_ms=_ROLE_TIMEOUT_MS)
        return None if answer is None else [str(step) for step in _read_list(answer)]

    async def log_digest(self, address: str, begin: int, end: int) -> str | None:
        """The checksum of the log's bytes from `begin` to `end`; "" when the broker does not hold all of them."""
        header = {"ranges": f"{begin}-{end}"}
        answer = await self._ask_twinlog(address, TwinlogCode.LOG_DIGESTS, header, timeout_ms=_DIGEST_TIMEOUT_MS)
        if answer is None:
            return None
        (digest,) = _read_list(answer) or [None]
        return digest or ""

    async def log_record(self, address: str, physical_offset: int) -> bytes | None:
        """The bytes of the record at an offset, from any broker; None when no record begins there."""
        try:
            answer = await self.ask_broker(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)})
        except BrokerRefused:
            return None
        return answer.body

    async def _ask_twinlog(
        self, address: str, code: int, header: object = None, *, timeout_ms: int | None = None
    ) -> Command | None:
        try:
            return await self.ask_broker(address, code, header, timeout_ms=timeout_ms)
        except BrokerRefused as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        return None


def _read_list(answer: Command) -> list[Any]:
    value = loads(answer.body or b"[]")
    if not isinstance(value, list):
        raise BodyError(f"a JSON list expected, the body is a {type(value).__name__}")
    return value
