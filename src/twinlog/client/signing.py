"""RocketMQ's request signing: the access key, and a signature over all fields and the body."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from twinlog.wire.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def sign(command: Command, credentials: Credentials) -> None:
    """Add the access key and the signature to `command`."""
    fields = dict(command.fields or {})
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = signature(fields, command.body, credentials.secret_key)
    command.fields = fields


def signature(fields: dict[str, str], body: bytes | None, secret_key: str) -> str:
    """Base64 of HMAC-SHA1 over the field values in the order of their names, then the body."""
    values = "".join(value for name, value in sorted(fields.items()) if name != SIGNATURE)
    content = values.encode() + (body or b"")
    return base64.b64encode(hmac.new(secret_key.encode(), content, hashlib.sha1).digest()).decode()
