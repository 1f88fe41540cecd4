"""Sockets and TLS of every server and outgoing connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from twinlog.settings.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS under Java's system-property names; they may stand in the main file or in the one `tls.config.file` names."""

    server_mode: Literal["disabled", "permissive", "enforcing"] = conf("tls.server.mode", "permissive")
    test_mode: bool = conf("tls.test.mode.enable", True)  # a self-signed certificate made at start-up
    config_file: str | None = conf("tls.config.file", None)
    server_cert_path: str | None = conf("tls.server.certPath", None)
    server_key_path: str | None = conf("tls.server.keyPath", None)
    server_key_password: str | None = conf("tls.server.keyPassword", None)
    server_trust_path: str | None = conf("tls.server.trustCertPath", None)
    server_checks_client: bool = conf("tls.server.authClient", False)
    server_client_auth: Literal["none", "optional", "require"] = conf("tls.server.need.client.auth", "none")
    client_enabled: bool = conf("tls.enable", False, old=["useTLS"])
    client_cert_path: str | None = conf("tls.client.certPath", None)
    client_key_path: str | None = conf("tls.client.keyPath", None)
    client_key_password: str | None = conf("tls.client.keyPassword", None)
    client_trust_path: str | None = conf("tls.client.trustCertPath", None)
    client_checks_server: bool = conf("tls.client.authServer", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """Limits of connections."""

    idle_seconds_max: int = conf("serverChannelMaxIdleTimeSeconds", 120, minimum=1)
    # Twinlog's own: what all peers together may have begun and not finished, and how soon each must go on.
    unfinished_bytes_max: int = conf("maxUnfinishedFrameBytes", 256 * 1024 * 1024, minimum=16 * 1024 * 1024, bits=64)
    progress_seconds_max: int = conf("frameProgressTimeoutSeconds", 60, minimum=1)
    send_buffer_bytes: int = conf("serverSocketSndBufSize", 0, minimum=0)  # 0: the system's choice
    receive_buffer_bytes: int = conf("serverSocketRcvBufSize", 0, minimum=0)
    backlog: int = conf("serverSocketBacklog", 1024, minimum=1)
    connect_timeout_ms: int = conf("connectTimeoutMillis", 3_000, minimum=1)
    tls: TlsSettings = field(default_factory=TlsSettings)
