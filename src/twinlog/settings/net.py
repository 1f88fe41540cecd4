"""Sockets and TLS of every server and outgoing connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from twinlog.base.address_list import check_address_list
from twinlog.settings.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS under Java's system-property names; in the main file or in the one that `tls.config.file` names."""

    # disabled refuses TLS, enforcing refuses clear text, permissive takes both on the same port.
    server_mode: Literal["disabled", "permissive", "enforcing"] = conf("tls.server.mode", "permissive")
    # Without key files, make a self-signed certificate at the start.
    test_mode: bool = conf("tls.test.mode.enable", True)
    # Another properties file with tls.* keys; they win over those of the main file.
    config_file: str | None = conf("tls.config.file", None)
    # Certificate chain of the server, PEM. Files that change are read again.
    server_cert_path: str | None = conf("tls.server.certPath", None)
    # Private key of the server, PEM.
    server_key_path: str | None = conf("tls.server.keyPath", None)
    # Password of that key.
    server_key_password: str | None = conf("tls.server.keyPassword", None)
    # Certificates that vouch for clients, PEM. Unset: those of this machine.
    server_trust_path: str | None = conf("tls.server.trustCertPath", None)
    # Check the certificates of clients, by the rule of tls.server.need.client.auth.
    server_checks_client: bool = conf("tls.server.authClient", False)
    # Whether a client must show a certificate; require needs tls.server.authClient and key files.
    server_client_auth: Literal["none", "optional", "require"] = conf("tls.server.need.client.auth", "none")
    # Use TLS for outgoing connections.
    client_enabled: bool = conf("tls.enable", False, old=["useTLS"])
    # Certificate chain that is shown to servers, PEM.
    client_cert_path: str | None = conf("tls.client.certPath", None)
    # Its private key, PEM.
    client_key_path: str | None = conf("tls.client.keyPath", None)
    # Password of that key.
    client_key_password: str | None = conf("tls.client.keyPassword", None)
    # Certificates that vouch for servers, PEM. Unset: those of this machine.
    client_trust_path: str | None = conf("tls.client.trustCertPath", None)
    # Check the certificates of servers. Host names are not checked.
    client_checks_server: bool = conf("tls.client.authServer", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """Limits of the connections of either server."""

    # Seconds without data after which a connection is closed.
    idle_seconds_max: int = conf("serverChannelMaxIdleTimeSeconds", 120, minimum=1)
    # Most bytes of requests of all connections that have begun to arrive. See limits.md for this and the next key.
    unfinished_bytes_max: int = conf("maxUnfinishedFrameBytes", 256 * 1024 * 1024, minimum=16 * 1024 * 1024, bits=64)
    # Seconds in which a request that has begun must end or grow by 64 KiB.
    progress_seconds_max: int = conf("frameProgressTimeoutSeconds", 60, minimum=1)
    # Most requests of one connection that are in work or wait for something; its next ones are not read meanwhile.
    waiting_requests_max: int = conf("maxWaitingRequestsPerConnection", 1_024, minimum=2)
    # Most requests of one connection in a row that are unknown or cannot be decoded; one more closes it. 0: no limit.
    errors_in_a_row_max: int = conf("maxErrorsInARowPerConnection", 1_000, minimum=0)
    # Most connections to all remoting ports of the server; 0: no limit.
    connections_max: int = conf("maxConnections", 50_000, minimum=0)
    # Most of them from one address, unless it is in proxyProtocolFrom; 0: no limit.
    address_connections_max: int = conf("maxConnectionsPerAddress", 10_000, minimum=0)
    # Most log lines per second of one event about one host; ten times as many at once, and about all hosts.
    log_lines_per_s: int = conf("maxLogLinesPerSecond", 10, minimum=1)
    # Bytes of a socket's send buffer; 0: the system's choice.
    send_buffer_bytes: int = conf("serverSocketSndBufSize", 0, minimum=0)
    # Bytes of a socket's receive buffer; 0: the system's choice.
    receive_buffer_bytes: int = conf("serverSocketRcvBufSize", 0, minimum=0)
    # Addresses and networks, besides this machine, from which administration is accepted while there are no accounts,
    # 192.0.2.1;10.0.0.0/8, or * for every address: changes of settings, topics, groups, offsets and roles.
    admin_from: str = conf("adminRequestsFrom", "", check=check_address_list)
    # Addresses and networks, besides this machine, that a replica serves which has an account for its master
    # (innerClientAuthenticationCredentials) and checks none itself; * for every address.
    clients_from: str = conf("clientsWithoutAccountsFrom", "", check=check_address_list)
    # Proxies whose PROXY protocol line is believed: addresses and networks, 192.0.2.1;10.0.0.0/8. From others it closes
    # the connection.
    proxies: str = conf("proxyProtocolFrom", "", check=check_address_list)
    # Connections that may wait to be accepted.
    backlog: int = conf("serverSocketBacklog", 1024, minimum=1)
    # Milliseconds that an outgoing connection may take to open.
    connect_timeout_ms: int = conf("connectTimeoutMillis", 3_000, minimum=1)
    tls: TlsSettings = field(default_factory=TlsSettings)
