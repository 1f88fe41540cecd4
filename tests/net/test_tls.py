import asyncio
import os
import ssl

import pytest

from twinlog.client.options import tls_context
from twinlog.net.certificates import Pair, issue, make_authority, self_signed
from twinlog.net.connection import ConnectionOptions, Request
from twinlog.net.errors import ConnectFailed, ConnectionLost
from twinlog.net.pool import connect
from twinlog.net.server import Server
from twinlog.net.tls import ServerTls, client_context
from twinlog.settings.errors import SettingsError
from twinlog.settings.net import TlsSettings


def echo(request: Request):
    return request.reply(body=request.body)


def write_pair(folder, name="server"):
    certificate, key = self_signed(name)
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


def write(folder, name, pair: Pair) -> tuple[str, str]:
    (folder / f"{name}.pem").write_text(pair.certificate)
    (folder / f"{name}.key").write_text(pair.key)
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


@pytest.fixture
def cluster_files(tmp_path):
    authority = make_authority()
    write(tmp_path, "ca", authority)
    return tmp_path, authority


async def ask_as_client(folder, server: Pair, **client: str | bool) -> bytes | None:
    """As a command asks: the certificate must be valid, known, and for this address."""
    cert, key = write(folder, "server", server)
    tls = ServerTls(TlsSettings(server_cert_path=cert, server_key_path=key))
    running = Server({10: echo}, tls=tls.context)
    await running.start("127.0.0.1", 0)
    try:
        context = tls_context(ca_file=str(folder / "ca.pem"), **client)
        connection = await connect(f"127.0.0.1:{running.port}", ConnectionOptions(), tls=context)
        answer = await connection.request(10, body=b"y")
        connection.close()
        return answer.body
    finally:
        await running.stop()


async def test_a_client_takes_a_valid_certificate_of_its_authority_for_this_address(cluster_files):
    folder, authority = cluster_files
    assert await ask_as_client(folder, issue(authority, "b", ["broker", "127.0.0.1"])) == b"y"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda authority: issue(authority, "b", ["127.0.0.1"], days=-1), "expired"),
        (lambda authority: issue(authority, "b", ["192.0.2.9", "other"]), "mismatch"),
        (lambda authority: issue(make_authority(), "b", ["127.0.0.1"]), "certificate"),
        (lambda authority: self_signed("127.0.0.1"), "self-signed"),
    ],
    ids=["expired", "another name", "another authority", "self-made"],
)
async def test_a_bad_certificate_ends_the_handshake(cluster_files, make, why):
    folder, authority = cluster_files
    with pytest.raises(ConnectFailed, match=why):
        await ask_as_client(folder, make(authority))


async def test_a_client_certificate_of_the_authority_is_accepted_and_others_are_not(cluster_files):
    folder, authority = cluster_files
    cert, key = write(folder, "server", issue(authority, "b", ["127.0.0.1"]))
    server = TlsSettings(
        server_cert_path=cert,
        server_key_path=key,
        server_checks_client=True,
        server_trust_path=str(folder / "ca.pem"),
        server_client_auth="require",
    )
    known = write(folder, "client", issue(authority, "c"))
    strange = write(folder, "strange", issue(make_authority(), "c"))
    late = write(folder, "late", issue(authority, "c", days=-1))

    def client(files):
        return TlsSettings(client_enabled=True, client_cert_path=files[0], client_key_path=files[1])

    assert await ask(server, client(known), b"y") == b"y"
    for files in (strange, late):
        with pytest.raises((ConnectionLost, ConnectFailed)):
            await ask(server, client(files))
