"""A stranger on the ports of a master gets nothing of the log, and is not counted; nor does a replica follow one.

Each attack was seen to succeed without haSharedSecret: 20 of 20 SYNC sends were acknowledged with a false replica.
"""

import asyncio
import contextlib
import socket

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import end_of, running_cluster, send_all, status, twins, until
from tests.replication.test_hostile_peers import fake_master, replica_of

from twinlog.net.connection import ConnectionOptions
from twinlog.net.pool import connect
from twinlog.replication.errors import JoinRefused
from twinlog.replication.hello import HelloHeader
from twinlog.replication.replica import replica_service
from twinlog.replication.secret import answer_proof, ha_number, proof, prove
from twinlog.replication.transfer import encode_pass, encode_report
from twinlog.settings.errors import SettingsError
from twinlog.wire.fields import encode_fields
from twinlog.wire.twinlog_codes import TwinlogCode

SECRET = "a-secret-of-the-cluster-0001"
WITH_SECRET = {"haSharedSecret": SECRET}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 300}
HELLO = encode_fields(
    HelloHeader(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        broker_id=1,
        instance="f" * 32,
        log_start=0,
        log_end=0,
        segment_bytes=4 * 1024 * 1024,
    )
)


async def on_ha_port(broker, *words: bytes) -> bytes:
    """Everything that the HA port sends until it closes the connection, or for a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.conf.replication.listen_port)
    received = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        writer.write(b"".join(words))
        async with asyncio.timeout(0.7):
            while data := await reader.read(65536):
                received += data
    writer.close()
    return received


@pytest.mark.parametrize("rule", [WITH_SECRET, {"haReplicasFrom": "192.0.2.0/24"}], ids=["secret", "list"])
async def test_a_stranger_gets_no_pass_no_checksum_no_metadata_and_no_byte_of_the_log(tmp_path, rule):
    async with running_broker(broker_conf(tmp_path, **rule)) as master:
        assert await send_all(master, [b"private"]) == [b"private"]
        requests = {
            TwinlogCode.REPLICA_HELLO: HELLO,
            TwinlogCode.LOG_DIGESTS: {"ranges": "0-10"},
            TwinlogCode.METADATA_CHANGES: {"topics": ""},
            TwinlogCode.OFFSETS_CARRIED_BACK: {},
        }
        async with connected(master) as connection:
            for code, fields in requests.items():
                answer = await connection.request(code, fields, b"{}")
                assert answer.code == 16 and not answer.body and "passNumber" not in (answer.fields or {})
                assert "haReplicasFrom" in (answer.remark or "")
        for words in ([encode_report(0)], [encode_pass(7), encode_report(0)], [b"\x16\x03\x01" + bytes(8)]):
            assert await on_ha_port(master, *words) == b""
        assert (await status(master))["replicas"] == []


async def test_a_false_replica_has_no_sync_send_acknowledged_and_does_not_lock_the_real_one_out(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master", "SYNC_MASTER", slaveTimeout=300, **WITH_SECRET)
        _, writer = await asyncio.open_connection("127.0.0.1", master.conf.replication.listen_port)
        async with connected(master) as connection:
            assert (await connection.request(TwinlogCode.REPLICA_HELLO, HELLO)).code == 16
            writer.write(encode_report(0))
            assert [(await send(connection)).code for _ in range(3)] == [11, 11, 11], "SLAVE_NOT_AVAILABLE"
            replica = await cluster.start("replica", "SLAVE", 1, **WITH_SECRET)
            await twins(master, replica)
            assert [(await send(connection)).code for _ in range(3)] == [0, 0, 0]
        writer.close()
        (shown,) = (await status(master))["replicas"]
        assert shown["inSync"] and shown["brokerId"] == 1
        assert SECRET not in str(master.context.conf.properties())


async def test_the_wrong_secret_a_replayed_proof_and_none_are_refused(tmp_path, caplog):
    async with running_broker(broker_conf(tmp_path, **WITH_SECRET)) as master, connected(master) as connection:
        with pytest.raises(JoinRefused, match="is wrong; set the same secret"):
            await prove(connection, "another-secret-000000001")
        asked = await connection.request(TwinlogCode.PROVE_SECRET, {"nonce": "n"})
        right = {"proof": proof(SECRET, "replica", "n", asked.fields["challenge"])}
        async with connected(master) as other:  # bound to the connection that was challenged
            assert (await other.request(TwinlogCode.PROVE_SECRET, right)).code == 16
        assert (await connection.request(TwinlogCode.PROVE_SECRET, right)).code == 0
        async with connected(master) as other:
            await other.request(TwinlogCode.PROVE_SECRET, {"nonce": "n"})
            assert (await other.request(TwinlogCode.PROVE_SECRET, right)).code == 16, "another challenge"
            assert (await other.request(TwinlogCode.PROVE_SECRET, right)).code == 16, "no challenge"
            assert (await other.request(TwinlogCode.REPLICA_HELLO, HELLO)).code == 16
        assert caplog.text.count("a peer did not prove haSharedSecret") == 4
        assert (await connection.request(TwinlogCode.REPLICA_HELLO, HELLO)).code == 0


async def test_a_pass_counts_once_needs_the_secret_and_ends_with_its_connection(tmp_path):
    async with running_broker(broker_conf(tmp_path, **WITH_SECRET)) as master:
        await send_all(master, [b"x"])

        async def pass_number(connection) -> int:
            await prove(connection, SECRET)
            return int((await connection.request(TwinlogCode.REPLICA_HELLO, HELLO)).fields["passNumber"])

        async with connected(master) as connection:
            number = await pass_number(connection)
            assert await on_ha_port(master, encode_pass(number), encode_report(0)) == b"", "not mixed with the secret"
            word = encode_pass(ha_number(SECRET, number))
            assert len(await on_ha_port(master, word, encode_report(0))) > end_of(master)
            assert await on_ha_port(master, word, encode_report(0)) == b"", "used"
        async with connected(master) as connection:
            number = await pass_number(connection)
        await until(lambda: not master.replication.master.passes._holders, "withdrawn")
        assert await on_ha_port(master, encode_pass(ha_number(SECRET, number)), encode_report(0)) == b""


async def test_a_listed_address_needs_no_proof_as_a_java_replica_cannot_give_one(tmp_path):
    conf = broker_conf(tmp_path, haReplicasFrom="10.0.0.0/8;127.0.0.1", **WITH_SECRET)
    async with running_broker(conf) as master:
        await send_all(master, [b"x"])
        assert len(await on_ha_port(master, encode_report(0))) > end_of(master)


@pytest.mark.parametrize("answers", [{}, {"PROVE_SECRET": lambda request: request.reply(fields={"challenge": "c"})}])
async def test_a_replica_with_a_secret_stores_nothing_of_a_master_that_does_not_prove_it(tmp_path, answers):
    """Its haMasterAddress was changed by request, and it stored and served a forged record."""
    async with replica_of(tmp_path, fake_master(**answers), **WITH_SECRET) as replica:
        shown = replica.replication.replica.status
        await until(lambda: shown.refusals, "it refuses to follow")
        assert "haSharedSecret" in shown.reason
        assert end_of(replica) == 0
        topics = replica.replication.sync.status.kind("topics")
        await until(lambda: "haSharedSecret" in topics.error, "nor takes its metadata")


async def test_a_proof_counts_for_the_connection_on_which_it_was_given_and_no_other(tmp_path, monkeypatch):
    """Who answers after the connection was lost may be somebody else. Seen to fail: the replica asked for its log."""

    async def prove_and_lose(connection, secret):
        await prove(connection, secret)
        connection.close()
        while not connection.closed:
            await asyncio.sleep(0)

    def proven(request):
        return request.reply(fields=answer_proof(request.connection, SECRET, request.fields))

    monkeypatch.setattr(replica_service, "prove", prove_and_lose)
    async with replica_of(tmp_path, fake_master(PROVE_SECRET=proven), **WITH_SECRET) as replica:
        shown = replica.replication.replica.status
        await until(lambda: "with it the proof of haSharedSecret" in shown.reason, "it does not follow")
        assert end_of(replica) == 0


async def test_connections_that_do_not_say_who_they_are_make_room_for_a_replica(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master", maxReplicaConnections=3)
        address = ("127.0.0.1", master.conf.replication.listen_port)
        silent = [socket.create_connection(address) for _ in range(5)]
        try:
            await send_all(master, [b"x"])
            await twins(master, await cluster.start("replica", "SLAVE", 1))
            assert len(master.replication.master._connections) <= 3 and master.replication.master.refused >= 3
        finally:
            for one in silent:
                one.close()


def test_a_short_secret_refuses_to_start(tmp_path):
    with pytest.raises(SettingsError, match="haSharedSecret"):
        broker_conf(tmp_path, haSharedSecret="short")


async def test_a_master_without_a_secret_says_so_to_a_replica_with_one(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as master:
        connection = await connect(master.address, ConnectionOptions())
        with pytest.raises(JoinRefused, match="this broker has no haSharedSecret"):
            await prove(connection, SECRET)
        connection.close()
