"""A client of etcd's v3 JSON gateway: as much of it as failover needs.

A write that gets no answer may have happened: that is OutcomeUnknown, and nothing here repeats it. EtcdUnavailable and
EtcdRefused mean that it did not happen. Reads go to the next endpoint until one answers. Every call ends within
`timeout_s`, whatever the endpoints do. Reads are linearizable, which is etcd's default.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from twinlog.base.addresses import parse_address
from twinlog.failover.comparisons import ChangedAt, Condition, CreatedAt, Put, Write
from twinlog.failover.http_post import NotHttp, NotSent, post

_CONNECTION_SHARE = 0.5  # of the time of a call that one endpoint may take, while there are others
# gRPC codes after which a write has surely not happened: it was invalid, named something unknown, or was not allowed.
_DEFINITE_CODES = frozenset({3, 5, 6, 7, 9, 11, 12, 16})
_UNAUTHENTICATED = 16
_OLD_TOKEN = "revision of auth store is old"  # a JWT of before the last change of users or roles; code 3
_NOT_FOUND = 5


class EtcdError(Exception):
    """etcd did not do what was asked, or nobody knows whether it did."""


class EtcdUnavailable(EtcdError):
    """No endpoint took the request: it has had no effect."""


class EtcdRefused(EtcdError):
    """etcd refused the request: it has had no effect."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class LeaseGone(EtcdRefused):
    """The lease has expired or was revoked."""

    def __init__(self, message: str) -> None:
        super().__init__(message, _NOT_FOUND)


class OutcomeUnknown(EtcdError):
    """The request was sent, and no valid answer came: it may have had its effect, or may have it later."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """What a range holds, at one revision of the whole of etcd."""

    revision: int
    rows: Mapping[str, KeyValue]


@dataclass(frozen=True, slots=True)
class TxnResult:
    succeeded: bool  # whether all conditions held, and so the writes were made
    revision: int


class Etcd:
    """Calls to one etcd cluster. Each call has a connection of its own, so a hung endpoint holds up nothing else."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float = 1.0,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoints = [(at.host, at.port) for at in map(parse_address, endpoints)]
        self._first: int = 0  # the endpoint that answered last
        self._timeout_s = timeout_s
        self._user, self._password = user, password
        self._token: str | None = None
        self._tls = tls

    async def read(self, key: str) -> KeyValue | None:
        """One key, or None."""
        found = _rows(await self._call("/v3/kv/range", {"key": _encode(key)}, is_read=True))
        return found.rows.get(key)

    async def read_prefix(self, prefix: str) -> Rows:
        """All keys that begin with `prefix`."""
        body = {"key": _encode(prefix), "range_end": _encode(_after_prefix(prefix))}
        return _rows(await self._call("/v3/kv/range", body, is_read=True))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Write one key; returns the revision."""
        return _revision(await self._call("/v3/kv/put", _put(Put(key, value, lease))))

    async def transact(self, conditions: Sequence[Condition], writes: Sequence[Write]) -> TxnResult:
        """Make all writes if all conditions hold, at one revision; else none."""
        body = {"compare": [_compare(one) for one in conditions], "success": [_operation(one) for one in writes]}
        answer = await self._call("/v3/kv/txn", body)
        return TxnResult(answer.get("succeeded") is True, _revision(answer))

    async def grant(self, ttl_s: int) -> int:
        """A new lease; returns its id. One whose answer is lost ends by itself."""
        return _number(await self._call("/v3/lease/grant", {"TTL": str(ttl_s)}), "ID")

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; returns the seconds that it lasts from now on. LeaseGone when it does not exist."""
        answer = await self._call("/v3/lease/keepalive", {"ID": str(lease)}, is_read=True)  # safe to repeat
        result = answer.get("result")
        if not isinstance(result, dict):
            raise OutcomeUnknown(f"etcd answered a keepalive without a result: {answer}")
        ttl_s = _number(result, "TTL", 0)  # pyright: ignore[reportUnknownArgumentType]
        if ttl_s <= 0:
            raise LeaseGone(f"the lease {lease} has expired")
        return ttl_s

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete its keys. LeaseGone when it does not exist."""
        await self._call("/v3/lease/revoke", {"ID": str(lease)})

    # -- calls ---------------------------------------------------------------------------------

    async def _call(self, path: str, body: Mapping[str, Any], *, is_read: bool = False) -> dict[str, Any]:
        """The answer of the first endpoint that gives one. Only reads are sent again once an endpoint may have them."""
        sent: list[str] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._try_endpoints(path, msgspec.json.encode(body), sent, is_read=is_read)
        except TimeoutError:
            text = f"no answer to {path} within {self._timeout_s} s"
            if sent and not is_read:
                raise OutcomeUnknown(f"{text} of {sent[-1]}") from None
            raise EtcdUnavailable(f"{text}; is etcd running at {self._names()}?") from None

    async def _try_endpoints(self, path: str, body: bytes, sent: list[str], *, is_read: bool) -> dict[str, Any]:
        problems: list[str] = []
        count = len(self._endpoints)
        for number in [(self._first + step) % count for step in range(count)]:
            name = f"{self._endpoints[number][0]}:{self._endpoints[number][1]}"
            try:
                async with asyncio.timeout(self._timeout_s if count == 1 else self._timeout_s * _CONNECTION_SHARE):
                    answer = await self._ask(number, path, body, sent)
            except NotSent as error:
                problems.append(f"{name}: {error}")
            except (OSError, NotHttp, _NoAnswer) as error:  # TimeoutError is an OSError
                reason = str(error) or "no answer"
                if name in sent and not is_read:
                    self._first = (number + 1) % count
                    raise OutcomeUnknown(f"{path} was sent to {name}: {reason}") from error
                problems.append(f"{name}: {reason}")
            else:
                self._first = number
                return answer
            self._first = (number + 1) % count
        raise EtcdUnavailable(f"no endpoint of etcd answers: {'; '.join(problems)}")

    async def _ask(self, number: int, path: str, body: bytes, sent: list[str]) -> dict[str, Any]:
        if self._user is not None and self._token is None:
            await self._authenticate(number)
        try:
            return await self._post(number, path, body, sent)
        except EtcdRefused as error:
            if self._user is None or (error.code != _UNAUTHENTICATED and _OLD_TOKEN not in str(error)):
                raise
            await self._authenticate(number)  # a token lasts five minutes, and ends with etcd's process
            return await self._post(number, path, body, sent)

    async def _authenticate(self, number: int) -> None:
        self._token = None
        asked = msgspec.json.encode({"name": self._user, "password": self._password or ""})
        token = (await self._post(number, "/v3/auth/authenticate", asked, [])).get("token")
        if not isinstance(token, str):
            raise _NoAnswer("it gave no token to the user")
        self._token = token

    async def _post(self, number: int, path: str, body: bytes, sent: list[str]) -> dict[str, Any]:
        host, port = self._endpoints[number]
        headers = {"Authorization": self._token} if self._token is not None else {}
        name = f"{host}:{port}"
        sent.append(name)
        try:
            status, text = await post(host, port, path, body, headers=headers, tls=self._tls)
        except NotSent:
            sent.remove(name)
            raise
        try:
            answer = msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise _NoAnswer(f"status {status}, and not JSON: {text[:80]!r}") from error
        if status == 200 and "error" not in answer:
            return answer
        problem = answer.get("error") if isinstance(answer.get("error"), dict) else answer  # a stream's error is nested
        message, code = str(problem.get("message", status)), problem.get("code", problem.get("grpc_code"))  # type: ignore[union-attr]
        if code == _NOT_FOUND and "lease" in message:
            raise LeaseGone(f"{name}: {message}")
        if isinstance(code, int) and code in _DEFINITE_CODES:
            raise EtcdRefused(f"{name}: {message}", code)
        raise _NoAnswer(f"status {status}: {message}")

    def _names(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._endpoints)


class _NoAnswer(Exception):
    """An endpoint's answer does not say whether the request had its effect."""


def _put(one: Put) -> dict[str, str]:
    return {"key": _encode(one.key), "value": _encode(one.value), "lease": str(one.lease)}


def _operation(one: Write) -> dict[str, Any]:
    if isinstance(one, Put):
        return {"request_put": _put(one)}
    return {"request_delete_range": {"key": _encode(one.key)}}


def _compare(one: Condition) -> dict[str, str]:
    key = {"key": _encode(one.key), "result": "EQUAL"}
    if isinstance(one, CreatedAt):
        return {**key, "target": "CREATE", "create_revision": str(one.revision)}
    if isinstance(one, ChangedAt):
        return {**key, "target": "MOD", "mod_revision": str(one.revision)}
    return {**key, "target": "VALUE", "value": _encode(one.value)}


def _rows(answer: dict[str, Any]) -> Rows:
    try:
        found = [_key_value(one) for one in answer.get("kvs", [])]
        return Rows(_revision(answer), {one.key: one for one in found})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OutcomeUnknown(f"etcd answered a read with something else: {error!r}") from error


def _key_value(row: dict[str, Any]) -> KeyValue:
    return KeyValue(
        base64.b64decode(row["key"], validate=True).decode(),
        base64.b64decode(row.get("value", ""), validate=True),
        int(row["create_revision"]),
        int(row["mod_revision"]),
        int(row.get("lease", 0)),
    )


def _revision(answer: dict[str, Any]) -> int:
    header = answer.get("header")
    if not isinstance(header, dict):
        raise OutcomeUnknown(f"etcd answered without a header: {answer}")
    return _number(header, "revision", 0)  # pyright: ignore[reportUnknownArgumentType]


def _number(answer: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A field with a number; etcd leaves a 0 out."""
    try:
        return int(answer.get(name, default))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise OutcomeUnknown(f"etcd answered without {name}: {dict(answer)}") from error


def _encode(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _after_prefix(prefix: str) -> bytes:
    """The first key behind all that begin with `prefix`; its last byte is text, so it is below 255."""
    data = prefix.encode()
    return data[:-1] + bytes([data[-1] + 1])
