"""TLS contexts from settings, with Java's rules.

A server takes TLS and clear text on the same port; the mode decides which it refuses. Without key files, test mode
makes a self-signed certificate at the start. Clients trust any server unless `tls.client.authServer` is set.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
import tempfile

from twinlog.settings.errors import SettingsError
from twinlog.settings.net import TlsSettings
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


class ServerTls:
    """The context of a listening port. Files that change are read again at the next handshake."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._seen = self._times()
        self.enforced = settings.server_mode == "enforcing"
        self.context = self._current = self._make()
        if self.context is not None and self._files():
            self.context.sni_callback = self._choose  # called with and without a server name

    def _choose(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self._refresh()
        if self._current is not context and self._current is not None:
            handshake.context = self._current

    def _refresh(self) -> None:
        if (now := self._times()) == self._seen:
            return
        try:
            self._current = self._make()
            self._seen = now
            log.info("TLS files were read again", files=", ".join(self._files()))
        except SettingsError as problem:  # half-written: the next handshake tries again
            log.warning("TLS files have changed and cannot be used yet", error=str(problem))

    def _make(self) -> ssl.SSLContext | None:
        settings = self._settings
        if settings.server_mode == "disabled":
            return None
        has_files = settings.server_cert_path is not None and settings.server_key_path is not None
        if settings.server_client_auth == "require" and not (has_files and settings.server_checks_client):
            # Java accepts any certificate then, which protects nothing.
            raise SettingsError(
                "tls.server.need.client.auth=require without anything to check certificates against; set "
                "tls.server.authClient=true, tls.server.trustCertPath, tls.server.certPath and tls.server.keyPath"
            )
        if not has_files and not settings.test_mode:
            if self.enforced:
                raise SettingsError(
                    "tls.server.mode=enforcing without a key; set tls.server.certPath and tls.server.keyPath"
                )
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if has_files:
            self._load(context)
        else:
            _load_self_signed(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        assert settings.server_cert_path is not None
        try:
            context.load_cert_chain(
                settings.server_cert_path, settings.server_key_path, settings.server_key_password or ""
            )
            if settings.server_checks_client:
                _trust(context, settings.server_trust_path)
                context.verify_mode = _CLIENT_AUTH[settings.server_client_auth]
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"TLS files {', '.join(self._files())} cannot be used: {error}; check them") from error

    def _files(self) -> list[str]:
        settings = self._settings
        found = (settings.server_cert_path, settings.server_key_path, settings.server_trust_path)
        return [path for path in found if path is not None]

    def _times(self) -> tuple[float, ...]:
        return tuple(os.stat(path).st_mtime if os.path.exists(path) else 0 for path in self._files())


def ha_server_tls(settings: TlsSettings) -> ServerTls:
    """TLS of the HA port; SettingsError when there is no certificate for it."""
    tls = ServerTls(settings)
    if tls.context is None:
        raise SettingsError("haTlsEnable without a certificate; set tls.server.certPath and tls.server.keyPath")
    return tls


def ha_client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a replica's connection to the HA port."""
    context = client_context(dataclasses.replace(settings, client_enabled=True))
    assert context is not None
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """The context of outgoing connections, None for clear text."""
    if not settings.client_enabled:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # brokers are known by address
    context.verify_mode = ssl.CERT_NONE
    try:
        if settings.client_checks_server:
            _trust(context, settings.client_trust_path)
            context.verify_mode = ssl.CERT_REQUIRED
        if settings.client_cert_path is not None:
            context.load_cert_chain(
                settings.client_cert_path, settings.client_key_path, settings.client_key_password or ""
            )
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"TLS files of outgoing connections cannot be used: {error}; check tls.client.*") from error
    return context


def _trust(context: ssl.SSLContext, path: str | None) -> None:
    """Accept certificates that are signed by those of a file, or else by those of this machine."""
    if path is not None:
        context.load_verify_locations(path)
    else:
        context.load_default_certs()


def _load_self_signed(context: ssl.SSLContext) -> None:
    from twinlog.net.certificates import self_signed  # takes longer to import than the rest of a broker's net

    certificate, key = self_signed()
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by this user only
        file.write(key + certificate)
        file.flush()
        context.load_cert_chain(file.name)
