"""The load generator counts what was answered and stored, and nothing else."""

import socket
import threading

import pytest
from bench.connections import TLS, LoadFailed, connect, count_answers, create_topics, queue_ends
from bench.lanes import Lane, send_shape
from bench.shapes import BACKLOG, CYCLE, QUEUES, SHAPES, fixed_frame, frames_of, stored_queues, topics_of
from tests.interop.twinlog_servers import Twinlog

from bench import lanes
from twinlog.security.signatures import is_signed
from twinlog.wire.command import decode_command, encode_command, response_to
from twinlog.wire.frame import BINARY, JSON, take_frame
from twinlog.wire.properties import decode_properties

OK_JSON = encode_command(response_to(1, fields={"msgId": "A", "queueOffset": "7"}), JSON)
OK_BINARY = encode_command(response_to(1, fields={"msgId": "A", "queueOffset": "7"}), BINARY)


def test_answers_of_both_types_are_counted_to_the_last_whole_one():
    data = OK_JSON + OK_BINARY + OK_JSON
    assert count_answers(data) == (3, len(data))
    for cut in range(1, len(OK_JSON)):
        assert count_answers(data[:-cut]) == (2, len(OK_JSON + OK_BINARY))
    assert count_answers(b"") == (0, 0)


def test_a_signed_frame_is_the_same_request_with_a_right_signature():
    for frame in frames_of(SHAPES["main"], "T", lane=1, round_id=7, count=5):
        plain, signed = (fixed_frame(frame, account) for account in (None, "me:my secret"))
        before, after = (decode_command(take_frame(bytearray(data))) for data in (plain, signed))
        assert CYCLE.encode() not in plain and is_signed(after.fields, after.body, b"my secret")
        assert {**before.fields, "AccessKey": "me", "Signature": after.fields["Signature"]} == after.fields
        assert (before.code, before.opaque, before.body) == (after.code, after.opaque, after.body)


def test_sends_over_tls_and_signed_ones_are_counted_as_others(tmp_path):
    accounts = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root secret"}',
        "authenticationWhitelist": "17,30",
        "authorizationWhitelist": "17,30",
    }
    twinlog = Twinlog()
    with (
        twinlog.name_server(tmp_path / "names") as names,
        twinlog.broker(tmp_path / "broker", names.address, registered=False, **accounts) as broker,
    ):
        tls = TLS + broker.address
        create_topics(tls, ["T"], QUEUES)
        result = send_shape(tls, "T", SHAPES["main"], seconds=0.1, account="root:root secret")
        assert result["count"] and result["cipher"] and not result["lost"]
        with pytest.raises(LoadFailed, match="signature"):
            send_shape(tls, "T", SHAPES["main"], seconds=0.1, account="root:wrong")
        with pytest.raises(LoadFailed, match="username"):
            send_shape(broker.address, "T", SHAPES["main"], seconds=0.1, fixed=True)


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize("code", [1, 2, 10, 14, 215])
def test_an_answer_with_an_error_code_fails_the_run(header_type, code):
    bad = encode_command(response_to(1, code, "no"), header_type)
    with pytest.raises(LoadFailed, match="no"):
        count_answers(OK_JSON + bad + OK_BINARY)


def test_each_cycle_of_a_lane_has_new_keys():
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = bytearray()
        lane = Lane(
            f"127.0.0.1:{server.getsockname()[1]}", frames_of(SHAPES["main"], "T", lane=0, round_id=1, count=8), 0
        )
        accepted, _ = server.accept()
        reader = threading.Thread(
            target=lambda: [received.extend(data) for data in iter(lambda: accepted.recv(65536), b"")]
        )
        reader.start()
        for count in (3, 5, 8, 1, 30):
            lane.send(count)
        lane.socket.close()
        reader.join()
        accepted.close()
    keys = []
    while frame := take_frame(received):
        properties = decode_properties((decode_command(frame).fields or {})["i"].encode())
        keys.append((properties["UNIQ_KEY"], properties["KEYS"], properties["traceparent"]))
    assert len(keys) == lane.sent == 47
    for column in zip(*keys, strict=True):
        assert len(set(column)) == 47


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    home = tmp_path_factory.mktemp("bench")
    with Twinlog().broker(home, "127.0.0.1:1", registered=False) as broker:
        yield broker


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_seen_to_be_stored(broker, name):
    shape = SHAPES[name]
    create_topics(broker.address, topics_of(shape, f"T_{name}"), QUEUES)
    result = send_shape(broker.address, f"T_{name}", shape, seconds=0.05)
    assert result["lost"] == 0
    assert 0 < result["count"] <= result["sent"]


def test_a_send_that_is_refused_fails_the_run(broker):
    shape = SHAPES["turn"]
    create_topics(broker.address, ["Narrow"], 2)  # queues 2 to 7 do not exist
    with pytest.raises(LoadFailed):
        send_shape(broker.address, "Narrow", shape, seconds=0.05)


def test_a_oneway_that_is_not_stored_does_not_count(broker, monkeypatch):
    monkeypatch.setattr(lanes, "SILENCE_MAX", 0.4)
    create_topics(broker.address, ["NarrowOneway"], 2)  # what goes to queues 2 to 7 is refused, and nobody says so
    result = send_shape(broker.address, "NarrowOneway", SHAPES["oneway"], seconds=0.05)
    assert result["sent"] == result["count"] + result["lost"]
    assert 0 < result["count"] < result["sent"] / 3


def test_acknowledged_messages_that_are_missing_in_the_store_fail_the_run(broker, monkeypatch):
    monkeypatch.setattr(lanes, "SILENCE_MAX", 0.1)
    create_topics(broker.address, ["Half"], QUEUES)
    with connect(broker.address) as control:
        lanes.wait_stored(control, [("Half", 0)], 0)
        with pytest.raises(LoadFailed, match="7 messages should be stored, the queues end at 0"):
            lanes.wait_stored(control, [("Half", 0)], 7)


def test_a_backlog_has_exactly_as_many_messages_as_were_asked_for(broker):
    create_topics(broker.address, ["Backlog"], QUEUES)
    lanes.fill_shape(broker.address, "Backlog", BACKLOG, 4100)
    with connect(broker.address) as control:
        assert queue_ends(control, stored_queues(BACKLOG, "Backlog")) == 4100
