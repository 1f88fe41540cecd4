"""Secrets that only the holder of a key can read.

    sealed text:  "1." base64( nonce 16 | cipher text | tag 32 )

The cipher text is the secret XOR a key stream, HMAC-SHA256(encryption key, nonce | counter); the tag is HMAC-SHA256(tag
key, nonce | owner | cipher text), so a sealed secret cannot be changed, or moved to another account. A broker
has no encryption library; this is the counter mode of a keyed hash, with encryption before authentication.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from twinlog.base.atomic_file import replace_file
from twinlog.base.safe_files import read_file
from twinlog.security.errors import AccountsBroken

KEY_VARIABLE = "TWINLOG_ACCOUNTS_KEY"
_KEY_LENGTH_MIN = 16
_FORM = "1."
_NONCE, _TAG = 16, 32


class Seal:
    """Seals and opens secrets with one key."""

    def __init__(self, key: bytes) -> None:
        self._stream_key = hmac.digest(key, b"twinlog secrets: stream", "sha256")
        self._tag_key = hmac.digest(key, b"twinlog secrets: tag", "sha256")

    def seal(self, owner: str, secret: str) -> str:
        nonce, data = secrets.token_bytes(_NONCE), secret.encode("utf-8", "surrogatepass")
        cipher = self._crypt(nonce, data)
        return _FORM + binascii.b2a_base64(nonce + cipher + self._tag(nonce, owner, cipher), newline=False).decode()

    def open(self, owner: str, sealed: str) -> str:
        """The secret; ValueError when the key is another, or the text was changed."""
        data = binascii.a2b_base64(sealed.removeprefix(_FORM))  # its errors are ValueErrors
        nonce, cipher, tag = data[:_NONCE], data[_NONCE:-_TAG], data[-_TAG:]
        known = sealed.startswith(_FORM) and len(data) >= _NONCE + _TAG
        if not known or not hmac.compare_digest(tag, self._tag(nonce, owner, cipher)):
            raise ValueError("it was sealed with another key, or changed")
        return self._crypt(nonce, cipher).decode("utf-8", "surrogatepass")

    def _crypt(self, nonce: bytes, data: bytes) -> bytes:
        stream = bytearray()
        while len(stream) < len(data):
            stream += hmac.digest(self._stream_key, nonce + len(stream).to_bytes(4, "big"), "sha256")
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))

    def _tag(self, nonce: bytes, owner: str, cipher: bytes) -> bytes:
        name = owner.encode("utf-8", "surrogatepass")
        return hmac.digest(self._tag_key, nonce + len(name).to_bytes(4, "big") + name + cipher, "sha256")


def seal_between(secret_key: str) -> Seal:
    """For secrets on their way between two brokers that both know the secret of one account."""
    return Seal(hashlib.sha256(b"twinlog accounts between brokers\0" + secret_key.encode()).digest())


def load_seal(key_file: Path, accounts_file: Path) -> Seal:
    """With the key of the environment or of a file; the file is made, unless accounts need the one that is lost."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        if len(given) < _KEY_LENGTH_MIN:
            raise AccountsBroken(f"{KEY_VARIABLE} has fewer than {_KEY_LENGTH_MIN} characters; give a longer key")
        return Seal(hashlib.sha256(given.encode()).digest())
    try:
        key = bytes.fromhex(read_file(key_file).decode().strip())
    except FileNotFoundError:
        if accounts_file.exists():
            raise AccountsBroken(
                f"{key_file} is missing, and {accounts_file} cannot be read without it; restore the key, or set "
                f"accountsKeyFile or {KEY_VARIABLE}"
            ) from None
        key = secrets.token_bytes(32)
        replace_file(key_file, [key.hex().encode() + b"\n"])
    except ValueError:
        raise AccountsBroken(f"{key_file} is not a key of hexadecimal digits; restore it from a backup") from None
    if len(key) < _KEY_LENGTH_MIN:
        raise AccountsBroken(f"{key_file} has fewer than {_KEY_LENGTH_MIN} bytes of key; restore it from a backup")
    return Seal(key)
