"""RocketMQ's signature of a request: HMAC-SHA1 over the values of all fields, in order of their names, and the body.

The signature has no time and no number in it, in Java neither: whoever records a request can send the same bytes again.
TLS keeps requests from being recorded.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hashlib import _Hash

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SIGNATURE_LENGTH = 28  # base64 of 20 bytes
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
VERSION_SIGNS_QUERY_FLAG = 400  # clients up to V4_9_3 add the flag of a query after they have signed
_BLOCK_BYTES = 64  # of SHA-1
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))


def signed_content(fields: Mapping[str, str], body: bytes | None, *, without_flag: bool = False) -> bytes:
    """What a signature covers; `without_flag` for clients that add the flag of a query later."""
    left_out = (SIGNATURE, UNIQUE_KEY_QUERY) if without_flag else (SIGNATURE,)
    values = "".join([fields[name] for name in sorted(fields) if name not in left_out])
    return values.encode("utf-8", "surrogatepass") + (body or b"")


def sign_content(content: bytes, secret: bytes) -> bytes:
    """The signature as it stands in a field: base64."""
    return binascii.b2a_base64(hmac.digest(secret, content, "sha1"), newline=False)


def signature(fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """The signature of a request with these fields."""
    return sign_content(signed_content(fields, body), secret_key.encode()).decode()


def is_signed(fields: Mapping[str, str], body: bytes | None, secret: bytes, *, without_flag: bool = False) -> bool:
    """Whether the fields carry the right signature; the time that this takes does not depend on the wrong one."""
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    wanted = sign_content(signed_content(fields, body, without_flag=without_flag), secret)
    return hmac.compare_digest(wanted, given.encode("utf-8", "surrogatepass"))


class AccountKey(NamedTuple):
    """HMAC-SHA1 with one secret, up to where the content begins: a third of the time of a whole one."""

    inner: _Hash
    outer: _Hash


def account_key(secret: bytes) -> AccountKey:
    block = (hashlib.sha1(secret).digest() if len(secret) > _BLOCK_BYTES else secret).ljust(_BLOCK_BYTES, b"\0")
    return AccountKey(hashlib.sha1(block.translate(_INNER)), hashlib.sha1(block.translate(_OUTER)))
