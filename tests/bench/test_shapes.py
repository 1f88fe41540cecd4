"""What the load generator sends is what each shape claims."""

import json
import re

import pytest
from bench.shapes import (
    BACKLOG,
    BACKLOG_KEPT,
    BACKLOG_SQL,
    BACKLOG_TAG,
    CYCLE,
    FRAMES,
    QUEUES,
    SHAPES,
    Shape,
    frames_of,
    stored_queues,
    topics_of,
)

from twinlog.wire.batch import decode_batch
from twinlog.wire.command import Command, decode_command
from twinlog.wire.frame import BINARY, JSON, Frame, take_frame
from twinlog.wire.properties import decode_properties

COUNT = 40


def frames(shape: Shape, **given: int) -> list[Frame]:
    made = frames_of(shape, "T", **{"lane": 1, "round_id": 7, "count": COUNT, **given})
    parsed = [take_frame(bytearray(frame)) for frame in made]
    assert None not in parsed
    return [frame for frame in parsed if frame is not None]


def commands(shape: Shape, **given: int) -> list[Command]:
    return [decode_command(frame) for frame in frames(shape, **given)]


def messages(shape: Shape, **given: int) -> list[dict[str, str]]:
    """The properties of every message, in order."""
    found = []
    for command in commands(shape, **given):
        assert command.fields is not None
        texts = [command.fields.get("i", command.fields.get("properties", "")).encode()]
        if shape.batch > 1:
            texts = [element.properties for element in decode_batch(command.body or b"")]
        found += [decode_properties(text) for text in texts]
    return found


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_code_type_and_body_are_the_shapes_own(shape):
    for frame in frames(shape):
        command = decode_command(frame)
        assert command.code == shape.code
        assert frame.header_type == shape.header_type
        assert command.is_oneway == shape.oneway
        body = command.body or b""
        bodies = [element.body for element in decode_batch(body)] if shape.batch > 1 else [body]
        assert [len(each) for each in bodies] == [shape.body_bytes] * shape.batch


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_no_two_messages_have_the_same_key(shape):
    keys = [
        properties["UNIQ_KEY"]
        for lane in range(4)
        for round_id in (7, 8)
        for properties in messages(shape, lane=lane, round_id=round_id)
    ]
    assert len(set(keys)) == len(keys) == 4 * 2 * COUNT * shape.batch
    assert all(CYCLE in key and key.isalnum() for key in keys)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_queues_and_topics_are_taken_as_the_shape_says(shape):
    fields = [command.fields or {} for command in commands(shape, count=0)]
    places = [(each.get("b", each.get("topic", "")), int(each.get("e", each.get("queueId", "-1")))) for each in fields]
    if shape.topics > 1:
        assert {topic for topic, _ in places} == set(topics_of(shape, "T"))
        assert len(places) % shape.topics == 0
    elif shape.own_queue:
        assert set(places) == {("T", 1)}
    else:
        assert [queue for _, queue in places[:QUEUES]] == [(number + 2) % QUEUES for number in range(QUEUES)]
        assert len(places) % QUEUES == 0
    if not shape.delay:
        assert set(places) <= set(stored_queues(shape, "T"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_keys_and_traceparent_differ_only_where_the_shape_says(shape):
    found = messages(shape)
    assert len({each.get("KEYS") for each in found}) == (COUNT if shape.keys else 1)
    assert len({each.get("traceparent") for each in found}) == (COUNT if shape.trace else 1)
    assert {each.get("DELAY") for each in found} == {"18" if shape.delay else None}
    if shape.trace:
        form = re.compile(f"00-[0-9a-f]{{28}}{CYCLE}-[0-9a-f]{{16}}-01")
        assert all(form.fullmatch(each["traceparent"]) for each in found)


def test_java_headers_are_those_of_a_real_producer():
    header = frames(SHAPES["turn"])[0].header
    assert header.startswith(b'{"code":310,"extFields":{"a":"BENCH_PG","b":"T","c":"TBW102","d":"8","e":"2","f":"0",')
    assert b'"n":"broker-a"},"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","vers' in header


def test_go_has_its_own_order_of_members_and_fields_by_chance():
    headers = [json.loads(frame.header) for frame in frames(SHAPES["go"])]
    for header in headers:
        assert list(header) == ["code", "language", "version", "opaque", "flag", "remark", "extFields"]
        assert header["language"] == "GO"
    assert len({tuple(header["extFields"]) for header in headers}) > COUNT // 2
    assert len({frozenset(header["extFields"]) for header in headers}) == 1
    assert list(json.loads(frames(SHAPES["go-order"])[0].header))[0:2] == ["code", "language"]


def test_blanks_stand_between_members_and_nowhere_else():
    header = frames(SHAPES["blanks"])[0].header
    assert header.startswith(b'{"code": 310, "extFields": {"a": "BENCH_PG", ')
    assert json.loads(header) == json.loads(frames(SHAPES["turn"])[0].header)


def test_v1_has_long_names_and_binary_the_same_fields_as_json():
    v1, turn, binary = (commands(SHAPES[name])[3] for name in ("v1", "turn", "binary"))
    assert v1.fields is not None and turn.fields is not None
    assert v1.fields["producerGroup"] == "BENCH_PG" and set(v1.fields.values()) == set(turn.fields.values())
    assert binary.fields == turn.fields
    assert {frame.header_type for frame in frames(SHAPES["binary"])} == {BINARY}
    assert {frame.header_type for frame in frames(SHAPES["v1"])} == {JSON}


def test_a_lane_has_enough_frames_to_make_a_cycle_worth_its_renumbering():
    assert len(frames_of(SHAPES["turn"], "T", lane=0, round_id=1)) == FRAMES


def test_a_tenth_of_the_backlog_passes_each_filter():
    found = messages(BACKLOG, count=0)
    assert len(found) % QUEUES == 0
    tenth = [each for each in found if each["TAGS"] == BACKLOG_TAG]
    assert len(tenth) * BACKLOG_KEPT == len(found)
    assert tenth == [each for each in found if each["n"] == "3" and each["region"] == "eu"]
    assert BACKLOG_SQL == "n = 3 AND region = 'eu'"
