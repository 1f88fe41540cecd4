import asyncio
import os
import ssl

import pytest

from twinlog.net.connection import ConnectionOptions, Request
from twinlog.net.errors import ConnectFailed, ConnectionLost
from twinlog.net.pool import connect
from twinlog.net.self_signed import self_signed_pem
from twinlog.net.server import Server
from twinlog.net.tls import ServerTls, client_context
from twinlog.settings.errors import SettingsError
from twinlog.settings.net import TlsSettings


def echo(request: Request):
    return request.reply(body=request.body)


def write_pair(folder, name="server"):
    certificate, key = self_signed_pem(name)
    (folder / f"{name}.pem").write_text(certificate)
    (folder / f"{name}.key").write_text(key)
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


async def ask(server_settings, client_settings, body=b"x" * 100_000):
    tls = ServerTls(server_settings)
    server = Server({10: echo}, tls=tls.context, tls_enforced=tls.enforced)
    await server.start("127.0.0.1", 0)
    try:
        address, context = f"127.0.0.1:{server.port}", client_context(client_settings)
        connection = await connect(address, ConnectionOptions(), tls=context)
        answer = await connection.request(10, body=body)
        connection.close()
        return answer.body
    finally:
        await server.stop()


async def test_test_mode_serves_tls_and_clear_text_on_one_port():
    for enabled in (True, False):
        assert await ask(TlsSettings(), TlsSettings(client_enabled=enabled)) == b"x" * 100_000


async def test_enforcing_closes_clear_text():
    with pytest.raises((ConnectionLost, ConnectFailed)):
        await ask(TlsSettings(server_mode="enforcing"), TlsSettings())
    assert await ask(TlsSettings(server_mode="enforcing"), TlsSettings(client_enabled=True), b"y") == b"y"


@pytest.mark.parametrize("settings", [TlsSettings(server_mode="disabled"), TlsSettings(test_mode=False)])
async def test_a_server_without_a_key_closes_tls(settings):
    with pytest.raises(ConnectFailed):
        await ask(settings, TlsSettings(client_enabled=True))


def test_enforcing_without_a_key_refuses_to_start():
    with pytest.raises(SettingsError, match=r"enforcing without a key; set tls.server.certPath"):
        ServerTls(TlsSettings(server_mode="enforcing", test_mode=False))


async def test_a_client_that_checks_takes_only_what_it_trusts(tmp_path):
    cert, key = write_pair(tmp_path)
    other, _ = write_pair(tmp_path, "other")
    server = TlsSettings(server_cert_path=cert, server_key_path=key)
    trusting = TlsSettings(client_enabled=True, client_checks_server=True, client_trust_path=cert)
    assert await ask(server, trusting, b"y") == b"y"
    with pytest.raises(ConnectFailed, match=r"self.signed"):
        await ask(server, TlsSettings(client_enabled=True, client_checks_server=True, client_trust_path=other))


async def test_a_server_can_demand_a_client_certificate(tmp_path):
    cert, key = write_pair(tmp_path)
    client_cert, client_key = write_pair(tmp_path, "client")
    server = TlsSettings(
        server_cert_path=cert,
        server_key_path=key,
        server_checks_client=True,
        server_trust_path=client_cert,
        server_client_auth="require",
    )
    known = TlsSettings(client_enabled=True, client_cert_path=client_cert, client_key_path=client_key)
    assert await ask(server, known, b"y") == b"y"
    with pytest.raises((ConnectionLost, ConnectFailed)):
        await ask(server, TlsSettings(client_enabled=True))


def test_a_demand_for_certificates_that_are_not_checked_refuses_to_start(tmp_path):
    cert, key = write_pair(tmp_path)
    for more in ({}, {"server_cert_path": cert, "server_key_path": key}, {"server_checks_client": True}):
        with pytest.raises(SettingsError, match=r"need.client.auth=require without .*; set tls.server.authClient=true"):
            ServerTls(TlsSettings(server_client_auth="require", **more))


async def test_without_a_file_a_server_trusts_what_the_machine_trusts(tmp_path):
    cert, key = write_pair(tmp_path)
    server = TlsSettings(
        server_cert_path=cert, server_key_path=key, server_checks_client=True, server_client_auth="require"
    )
    unknown = TlsSettings(client_enabled=True, client_cert_path=cert, client_key_path=key)
    with pytest.raises((ConnectionLost, ConnectFailed)):
        await ask(server, unknown)


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"/no/cert, /no/key cannot be used"):
        ServerTls(TlsSettings(server_cert_path="/no/cert", server_key_path="/no/key"))
    with pytest.raises(SettingsError, match=r"check tls.client"):
        client_context(TlsSettings(client_enabled=True, client_cert_path="/no/cert"))


async def test_changed_files_are_read_again_at_the_next_handshake(tmp_path):
    cert, key = write_pair(tmp_path)
    tls = ServerTls(TlsSettings(server_cert_path=cert, server_key_path=key))
    server = Server({}, tls=tls.context)
    await server.start("127.0.0.1", 0)

    async def shown():
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))

    try:
        first = await shown()
        (tmp_path / "server.pem").write_text("half")
        assert await shown() == first
        write_pair(tmp_path)
        os.utime(cert, (1, 1))
        assert await shown() == (tmp_path / "server.pem").read_text() != first
    finally:
        await server.stop()
