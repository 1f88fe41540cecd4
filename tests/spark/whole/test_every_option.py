"""Options of both sources whose effect no other test would miss; all without a JVM."""

import socket
import ssl

import pytest
from tests.spark.own_time import own_time
from tests.spark.topics import numbers
from tests.store.store_at import fill, open_store

from twinlog.client import ClientError, NoNameServer
from twinlog.net.certificates import self_signed
from twinlog.spark import cluster_routes, remoting
from twinlog.spark.errors import BadRecord
from twinlog.spark.reading.brokers import fetch, pull_requests
from twinlog.spark.reading.stores.batch_reader import StoreBatchReader
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.schema import MESSAGE_COLUMNS, STORE_MESSAGE_COLUMNS
from twinlog.spark.source import RocketmqSource
from twinlog.store.errors import NotAStore


def first_row(reader) -> dict:
    (part,) = reader.partitions()
    return next(row for batch in reader.read(part) for row in batch.to_pylist())


def test_group_id_prefix_begins_the_group_of_a_query_and_a_consumer_group_counts_before_it(make_topic, monkeypatch):
    groups = []
    real = pull_requests.pull_header

    def header(group, *more, **rest):
        groups.append(group)
        return real(group, *more, **rest)

    monkeypatch.setattr(pull_requests, "pull_header", header)
    topic = make_topic(queues=1)
    topic.send("1")
    other = make_topic(queues=1)
    other.send("1")
    for given in ({}, {"groupIdPrefix": "mine"}, {"groupIdPrefix": "mine", "consumerGroup": "theirs"}):
        assert topic.read(**given) == ["1"]
    assert topic.read(groupIdPrefix="mine") == other.read(groupIdPrefix="mine") == ["1"]
    plain, mine, theirs, others = dict.fromkeys(groups)  # the same query has the same group again
    assert (plain, theirs) == ("spark-rocketmq-source", "theirs")
    assert mine.startswith("mine-") and others.startswith("mine-")


def test_pull_batch_size_and_depth_limit_what_is_on_its_way(make_topic, monkeypatch):
    asked = []
    real = fetch.QueueFetch._send

    def send(self, connection, pulls):
        asked.append(([pull.count for pull in pulls], len(self._pulls) + len(pulls)))
        return real(self, connection, pulls)

    monkeypatch.setattr(fetch.QueueFetch, "_send", send)
    topic = make_topic(queues=1)
    topic.send_numbers(100)
    assert topic.read(pullBatchSize=7, pullDepth=3) == numbers(100)
    assert max(count for counts, _ in asked for count in counts) == 7
    assert max(under_way for _, under_way in asked) == 3


def test_without_properties_there_is_no_such_column(make_topic):
    topic = make_topic(queues=1)
    topic.send("1", tags="red")
    without = RocketmqSource(topic.options(includeProperties="false"))
    assert "properties" not in without.schema()
    assert "properties" in RocketmqSource(topic.options()).schema()
    columns = {name: kind for name, kind in MESSAGE_COLUMNS.items() if name != "properties"}
    row = first_row(topic.reader(columns, includeProperties="false"))
    assert row["tags"] == "red"
    assert "properties" not in row


def test_bodies_may_be_left_as_they_are_stored(make_topic):
    topic = make_topic(queues=1)
    topic.send(b"x" * 20_000)  # the producer compresses it
    assert first_row(topic.reader())["body"] == b"x" * 20_000
    stored = first_row(topic.reader(decompress="false"))
    assert len(stored["body"]) < 1000
    assert (stored["sysFlag"] & 1, first_row(topic.reader())["sysFlag"] & 1) == (1, 0)


def test_checksums_are_compared_on_request(make_topic, monkeypatch):
    topic = make_topic(queues=1)
    topic.send("a body like no other")
    real = fetch.QueueFetch.chunks

    def damaged(self):
        for chunk in real(self):
            yield bytes(chunk).replace(b"like no other", b"like so other")

    monkeypatch.setattr(fetch.QueueFetch, "chunks", damaged)
    assert topic.read() == ["a body like so other"]
    with pytest.raises(BadRecord, match="damaged record"):
        topic.read(checkCrc="true")


def test_the_driver_tries_as_often_and_pauses_as_long_as_its_options_say(make_topic, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    pauses = []
    monkeypatch.setattr(cluster_routes, "time", own_time(sleep=pauses.append))
    options = {"fetchOffset__numRetries": 5, "fetchOffset__retryIntervalMs": 70}
    with pytest.raises(NoNameServer):
        make_topic().reader(nameServer=nobody, **options).partitions()
    assert pauses == [0.07] * 5


def test_a_security_token_travels_with_every_signed_request(make_topic, monkeypatch):
    tokens = set()
    real = remoting.sign

    def sign(command, keys):
        real(command, keys)
        tokens.add(command.fields["SecurityToken"])

    monkeypatch.setattr(remoting, "sign", sign)
    topic = make_topic(queues=1)
    topic.send("1")
    keys = {"accessKey": "me", "secretKey": "hidden", "rocketmq__securityToken": "token-1"}
    assert topic.read(**keys) == ["1"]
    assert tokens == {"token-1"}


def test_a_server_that_does_not_answer_is_waited_for_as_long_as_the_request_timeout(make_topic):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = {"fetchOffset__numRetries": 0, "rocketmq__requestTimeoutMs": 120}
        with pytest.raises(NoNameServer, match="120 ms"):
            make_topic().reader(nameServer=address, **options).partitions()


def test_the_connect_timeout_is_the_sockets(make_topic, monkeypatch):
    seen = []
    real = socket.create_connection
    monkeypatch.setattr(
        remoting.socket, "create_connection", lambda place, timeout: (seen.append(timeout), real(place, timeout))[1]
    )
    topic = make_topic(queues=1)
    topic.send("1")
    assert topic.read(rocketmq__connectTimeoutMs=1234) == ["1"]
    assert set(seen) == {1.234}


def test_files_of_a_store_may_lie_elsewhere(tmp_path):
    with open_store(tmp_path) as store:
        places = [place.physical_offset for place in fill(store, 250)]
    (tmp_path / "store" / "commitlog").rename(tmp_path / "log")
    given = {"path": str(tmp_path / "store")}
    with pytest.raises(NotAStore):
        StoreBatchReader(store_options(given), STORE_MESSAGE_COLUMNS).partitions()
    reader = StoreBatchReader(store_options({**given, "commitLogDirs": str(tmp_path / "log")}), STORE_MESSAGE_COLUMNS)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["commitLogOffset"] for row in rows] == places


def test_a_certificate_authority_is_trusted_and_a_key_must_fit_its_certificate(make_topic, tmp_path):
    topic = make_topic(queues=1)
    topic.send("1")
    tls = {"rocketmq__useTLS": "true", "fetchOffset__numRetries": 0}
    host, port = topic.name_server.split(":")
    (tmp_path / "ca.pem").write_text(ssl.get_server_certificate((host, int(port))))
    for name in ("mine", "other"):
        certificate, key = self_signed()
        (tmp_path / f"{name}.crt").write_text(certificate)
        (tmp_path / f"{name}.key").write_text(key)
    with pytest.raises(NoNameServer, match="self-signed certificate"):
        topic.read(**tls)
    with pytest.raises(NoNameServer, match="IP address mismatch"):  # trusted, but made for another host
        topic.read(**tls, rocketmq__tls__caFile=tmp_path / "ca.pem")
    tls |= {"rocketmq__tls__verify": "false", "rocketmq__tls__certFile": tmp_path / "mine.crt"}
    assert topic.read(**tls, rocketmq__tls__keyFile=tmp_path / "mine.key") == ["1"]
    with pytest.raises(ClientError, match=r"(?i)other.key cannot be used: .*key.values.mismatch"):
        topic.read(**tls, rocketmq__tls__keyFile=tmp_path / "other.key")
