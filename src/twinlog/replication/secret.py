"""How a replica and its master prove to each other that they know `haSharedSecret`, without sending it.

    replica                                    master
    PROVE_SECRET nonce                   -->
                                         <--   challenge
    PROVE_SECRET HMAC(replica, ...)      -->   checks it; from now on this connection is a replica's
                                         <--   HMAC(master, ...)
    checks it; from now on this is the master

Both numbers are random and used once, so nothing can be replayed. The one who asks proves first: a stranger gets
nothing that it could guess the secret with. On the HA port, the pass (see `hello`) is mixed with the secret: one that
was read from another connection is of no use.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

from twinlog.net.connection import Connection
from twinlog.replication.errors import JoinRefused
from twinlog.wire.codes import ResponseCode
from twinlog.wire.twinlog_codes import TwinlogCode

NONCE, CHALLENGE, PROOF = "nonce", "challenge", "proof"
_PROVEN = "ha_secret_proven"
_ASKED = "ha_secret_asked"
_PROVING = "ha_secret_proving"
_TIMEOUT_MS = 3000
_PASS_BITS = 61


def proof(secret: str, side: str, nonce: str, challenge: str) -> str:
    """What one side sends to prove that it knows the secret."""
    return hmac.new(secret.encode(), f"twinlog ha {side} {nonce} {challenge}".encode(), hashlib.sha256).hexdigest()


def ha_number(secret: str | None, pass_number: int) -> int:
    """The number that the holder of a pass sends on the HA port."""
    if secret is None:
        return pass_number
    digest = hmac.new(secret.encode(), f"twinlog ha pass {pass_number}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _PASS_BITS)


def is_proven(connection: Connection) -> bool:
    """Whether the peer of this connection has proven that it knows the secret."""
    return connection.attributes.get(_PROVEN, False)


def answer_proof(connection: Connection, secret: str | None, fields: dict[str, str]) -> dict[str, str]:
    """The master's part; JoinRefused when the peer does not know the secret."""
    if secret is None:
        raise JoinRefused("this broker has no haSharedSecret; set the same one in all brokers of a name")
    if (nonce := fields.get(NONCE)) is not None:
        challenge = secrets.token_hex(32)
        connection.attributes[_ASKED] = (nonce[:128], challenge)
        return {CHALLENGE: challenge}
    asked = connection.attributes.pop(_ASKED, None)
    given = fields.get(PROOF, "")
    if asked is None or not hmac.compare_digest(given.encode(), proof(secret, "replica", *asked).encode()):
        raise JoinRefused("the proof of haSharedSecret is wrong; set the same secret in all brokers of a name")
    connection.attributes[_PROVEN] = True
    return {PROOF: proof(secret, "master", *asked)}


async def prove(connection: Connection, secret: str) -> None:
    """The replica's part, once for each connection; JoinRefused when either side does not know the secret."""
    async with connection.attributes.setdefault(_PROVING, asyncio.Lock()):  # log and metadata share a connection
        if not is_proven(connection):
            await _prove(connection, secret)


async def _prove(connection: Connection, secret: str) -> None:
    nonce = secrets.token_hex(32)
    fields = await _ask(connection, {NONCE: nonce})
    challenge = fields.get(CHALLENGE, "")
    fields = await _ask(connection, {PROOF: proof(secret, "replica", nonce, challenge)})
    if not hmac.compare_digest(fields.get(PROOF, "").encode(), proof(secret, "master", nonce, challenge).encode()):
        raise JoinRefused(f"{connection.peer_text} does not know haSharedSecret, so it is not this replica's master")
    connection.attributes[_PROVEN] = True


async def _ask(connection: Connection, fields: dict[str, str]) -> dict[str, str]:
    answer = await connection.request(TwinlogCode.PROVE_SECRET, fields, timeout_ms=_TIMEOUT_MS)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise JoinRefused(
            f"{connection.peer_text} is a Java broker, which cannot prove haSharedSecret; remove that from this "
            "replica's settings to follow a Java master"
        )
    if answer.code != ResponseCode.SUCCESS:
        raise JoinRefused(f"{connection.peer_text} refuses this replica: {answer.remark}")
    return answer.fields or {}
