"""Settings of a client, all with working defaults."""

import ssl
from dataclasses import dataclass

from twinlog.client.errors import BadArgument
from twinlog.client.signing import Credentials
from twinlog.wire.compression import BODY_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client reaches its servers; producers and consumers have further options of their own."""

    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None  # see tls_context()
    instance_name: str | None = None  # part of the client id; the default is unique in this process
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    decompressed_bytes_max: int = BODY_BYTES_MAX  # of a message; one that grows beyond it is given as it is stored
    vip_channel: bool = False  # everything but pulls goes to the broker's port - 2


def tls_context(
    *, ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None, verify: bool = True
) -> ssl.SSLContext:
    """A context for `ClientOptions.tls`; `verify=False` accepts the self-signed test certificate of a Java server."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        given = ", ".join(path for path in (ca_file, cert_file, key_file) if path)
        raise BadArgument(f"TLS files {given} cannot be used: {error}; check that they are there and in PEM") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
