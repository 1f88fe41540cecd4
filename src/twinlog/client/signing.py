"""RocketMQ's request signing: the access key, and a signature over all fields and the body."""

from dataclasses import dataclass, field

from twinlog.security.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from twinlog.wire.command import Command


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
