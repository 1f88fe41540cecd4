"""The options that say how to reach a cluster; reads, writes and jobs share them.

They are read once, in the driver, and travel to the workers as frozen values.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from twinlog.client.errors import ClientError
from twinlog.client.options import tls_context
from twinlog.client.routing.name_servers import parse_name_servers
from twinlog.client.signing import Credentials
from twinlog.spark.errors import BadOption
from twinlog.spark.option_values import OptionValues

CLUSTER_OPTIONS = (
    "nameServer",
    "accessKey",
    "secretKey",
    "rocketmq.securityToken",
    "brokerWait",
    "rocketmq.connectTimeoutMs",
    "rocketmq.requestTimeoutMs",
    "rocketmq.useTLS",
    "rocketmq.tls.caFile",
    "rocketmq.tls.certFile",
    "rocketmq.tls.keyFile",
    "rocketmq.tls.verify",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach a cluster; secrets do not show in its repr."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = field(default=None, repr=False)
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True
    tries: int = 4  # of a request of the driver, the first included
    retry_interval_ms: int = 10
    broker_wait_ms: int = 300_000  # for a broker that is away


def tls_of(options: ClusterOptions) -> ssl.SSLContext | None:
    """The TLS context of connections to the cluster; None without TLS."""
    if not options.tls:
        return None
    return tls_context(
        ca_file=options.tls_ca_file,
        cert_file=options.tls_cert_file,
        key_file=options.tls_key_file,
        verify=options.tls_verify,
    )


def cluster_options(values: OptionValues) -> ClusterOptions:
    """The part of the options that reads and writes share."""
    text = values.required("nameServer", "127.0.0.1:9876")
    try:
        name_servers = tuple(parse_name_servers(text))
    except ClientError as error:
        raise BadOption(f"option nameServer: {error}") from error
    access, secret = values.text("accessKey"), values.text("secretKey")
    if (access is None) != (secret is None):
        raise BadOption("accessKey and secretKey belong together: give both or neither")
    credentials = None
    if access is not None and secret is not None:
        credentials = Credentials(access, secret, values.text("rocketmq.securityToken"))
    return ClusterOptions(
        name_servers=name_servers,
        credentials=credentials,
        connect_timeout_ms=values.integer("rocketmq.connectTimeoutMs", 3_000, low=1),
        request_timeout_ms=values.integer("rocketmq.requestTimeoutMs", 3_000, low=1),
        tls=values.flag("rocketmq.useTLS", False),
        tls_ca_file=values.text("rocketmq.tls.caFile"),
        tls_cert_file=values.text("rocketmq.tls.certFile"),
        tls_key_file=values.text("rocketmq.tls.keyFile"),
        tls_verify=values.flag("rocketmq.tls.verify", True),
        tries=1 + values.integer("fetchOffset.numRetries", 3),
        retry_interval_ms=values.integer("fetchOffset.retryIntervalMs", 10),
        broker_wait_ms=values.duration_ms("brokerWait", 300_000),
    )
