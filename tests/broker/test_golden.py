"""Requests captured between real RocketMQ software, replayed: our answers carry what Java's carried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.broker.contexts import wired

from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.frame import take_frame
from twinlog.wire.message import decode_messages

VECTORS = Path(__file__).parent.parent / "vectors"
PLACES = ("msgId", "queueOffset")  # differ, as the captured log was not empty


def frame_of(name: str) -> bytes:
    return bytes.fromhex("".join((VECTORS / f"{name}.hex").read_text().split()))


def command_of(name: str) -> Command:
    frame = take_frame(bytearray(frame_of(name)))
    assert frame is not None
    return decode_command(frame)


async def replay(connection: Connection, name: str) -> Command:
    """The answer to the captured bytes, sent exactly as they are."""
    opaque = command_of(f"{name}-req").opaque
    answer = connection._answers.add(opaque, 10_000)
    connection.send(frame_of(f"{name}-req"))
    return await answer


@pytest.mark.parametrize(
    "name", ["wire-send-v2", "wire-send-v2-compressed", "wire-send-v2-rocketmq", "wire-send-batch"]
)
async def test_a_captured_send_is_answered_as_java_did(connection, name):
    answer, java = await replay(connection, name), command_of(f"{name}-resp")
    assert (answer.code, answer.remark, answer.flag, answer.body) == (java.code, java.remark, java.flag, java.body)
    assert answer.version == java.version
    ours = {key: value for key, value in answer.fields.items() if key not in PLACES}
    assert ours == {key: value for key, value in java.fields.items() if key not in PLACES}
    assert [len(part) for part in answer.fields["msgId"].split(",")] == [
        len(part) for part in java.fields["msgId"].split(",")
    ]


async def test_captured_messages_are_pulled_as_java_returned_them(broker, connection):
    for name in ("wire-send-v2", "wire-send-v2-compressed", "wire-send-batch"):
        await replay(connection, name)
    answer, java = await replay(connection, "wire-pull-3-messages"), command_of("wire-pull-3-messages-resp")
    assert (answer.code, answer.remark) == (java.code, java.remark)
    differing = {"maxOffset"}  # a fifth message had been sent when the answer was captured
    assert {k: v for k, v in answer.fields.items() if k not in differing} == {
        k: v for k, v in java.fields.items() if k not in differing
    }
    expected = json.loads((VECTORS / "wire-pull-3-messages-resp.json").read_text())["messages"]
    messages = decode_messages(answer.body)
    for message, seen in zip(messages[:2], expected[:2], strict=True):
        assert message.properties.pop("__CRC32#").isdigit()  # Java's default leaves it out
        assert message.properties == seen["properties"]
        assert (message.queue_offset, message.flag, message.sys_flag) == (
            seen["queueOffset"],
            seen["flag"],
            seen["sysFlagStored"],
        )
        assert (message.born_timestamp, message.body_crc) == (seen["bornTimestamp"], seen["bodyCRC"])
    # 5.3.3 added the wrapper's properties to each message of a batch; later versions keep each message's own.
    assert messages[2].properties.items() <= expected[2]["properties"].items() | messages[2].properties.items()
    assert messages[2].properties["UNIQ_KEY"] != expected[2]["properties"]["UNIQ_KEY"]


async def test_a_binary_request_gets_a_json_answer():
    options = ConnectionOptions()
    connection, transport = wired(options)
    connection.data_received(encode_command(Command(999, 7), 1))
    frame = take_frame(bytearray(transport.data))
    assert frame is not None
    assert frame.header_type == 0
