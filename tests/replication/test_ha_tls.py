"""TLS on the HA port: the same bytes arrive, and what has no valid certificate or no TLS gets nothing."""

import asyncio
import contextlib

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.net.test_tls import write
from tests.replication.cluster import end_of, running_cluster, send_all, status, twins, until

from twinlog.net.certificates import issue, make_authority
from twinlog.replication.transfer import encode_report
from twinlog.settings.errors import SettingsError


def tls_keys(folder, authority, name: str, *, days: int = 30) -> dict[str, object]:
    """The settings of a broker with a certificate of this authority, which checks those of others."""
    folder.mkdir(exist_ok=True)
    cert, key = write(folder, name, issue(authority, name, ["127.0.0.1"], days))
    ca, _ = write(folder, f"{name}-ca", authority)
    return {
        "haTlsEnable": True,
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        "tls.client.authServer": True,
        "tls.client.trustCertPath": ca,
    }


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_replica_follows_over_tls_from_far_behind_and_keeps_up(tmp_path, role):
    authority = make_authority()
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master", role, haTlsRequired=True, **tls_keys(tmp_path / "tls", authority, "m"))
        bodies = [b"%d" % n + bytes(100_000) for n in range(60)]  # several segments, more than a turn of the loop
        await send_all(master, bodies)
        keys = {"haCopyWholeHistory": True, **tls_keys(tmp_path / "tls", authority, "r")}
        replica = await cluster.start("replica", "SLAVE", 1, **keys)
        await twins(master, replica)
        assert end_of(replica) > 6_000_000
        async with connected(master) as connection:
            assert [(await send(connection, b"one by one")).code for _ in range(20)] == [0] * 20
        await twins(master, replica)
        (shown,) = (await status(master))["replicas"]
        assert shown["inSync"]


async def heard_in_clear_text(master) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", master.conf.replication.listen_port)
    received = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        writer.write(encode_report(0))
        async with asyncio.timeout(0.7):
            while data := await reader.read(65536):
                received += data
    writer.close()
    return received


@pytest.mark.parametrize("required", [True, False])
async def test_clear_text_is_for_java_replicas_unless_the_operator_forbids_it(tmp_path, required):
    keys = tls_keys(tmp_path / "tls", make_authority(), "m")
    async with running_broker(broker_conf(tmp_path / "store", haTlsRequired=required, **keys)) as master:
        await send_all(master, [b"private"])
        assert (len(await heard_in_clear_text(master)) > end_of(master)) == (not required)


@pytest.mark.parametrize("fault", ["another authority", "expired"])
async def test_a_replica_does_not_follow_a_master_with_a_bad_certificate(tmp_path, fault):
    authority = make_authority()
    theirs = make_authority() if fault == "another authority" else authority
    async with running_cluster(tmp_path) as cluster:
        days = -1 if fault == "expired" else 30
        master = await cluster.start("master", **tls_keys(tmp_path / "tls", theirs, "m", days=days))
        await send_all(master, [b"x"])
        replica = await cluster.start("replica", "SLAVE", 1, **tls_keys(tmp_path / "tls", authority, "r"))
        shown = replica.replication.replica.status
        await until(lambda: "certificate" in shown.reason, "it names the certificate")
        assert end_of(replica) == 0 and (await status(master))["replicas"] == []


async def test_tls_to_a_port_without_it_and_tls_without_a_certificate_are_named(tmp_path):
    authority = make_authority()
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        await send_all(master, [b"x"])
        replica = await cluster.start("replica", "SLAVE", 1, **tls_keys(tmp_path / "tls", authority, "r"))
        shown = replica.replication.replica.status
        await until(lambda: shown.reconnects or shown.reason, "it does not follow")
        assert end_of(replica) == 0
    with pytest.raises(SettingsError, match="haTlsEnable without a certificate"):
        conf = broker_conf(tmp_path / "other", **{"haTlsEnable": True, "tls.test.mode.enable": False})
        async with running_broker(conf):
            pass


async def test_connections_that_say_nothing_make_room_for_a_replica_with_tls(tmp_path):
    """Seen to fail: as many silent connections as maxReplicaConnections locked every replica out for 20 seconds."""
    authority = make_authority()
    async with running_cluster(tmp_path) as cluster:
        keys = tls_keys(tmp_path / "tls", authority, "m")
        master = await cluster.start("master", maxReplicaConnections=3, **keys)
        port = master.conf.replication.listen_port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await send_all(master, [b"x"])
        await twins(master, await cluster.start("replica", "SLAVE", 1, **tls_keys(tmp_path / "tls", authority, "r")))
        assert len(master.replication.master._greeting) <= 3
        for _, writer in silent:
            writer.close()
