import pytest

from twinlog.spark.errors import BadOption
from twinlog.spark.offsets import decode_offsets, encode_offsets
from twinlog.spark.option_values import OptionValues
from twinlog.spark.reading.brokers.options import Position, PositionKind, read_options
from twinlog.wire.bodies import MessageQueue

GIVEN = {"nameServer": "127.0.0.1:9876", "topic": "Orders"}
A0, A1 = MessageQueue("Orders", "broker-a", 0), MessageQueue("Orders", "broker-a", 1)


def batch(**more):
    return read_options({**GIVEN, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=False)


def stream(**more):
    return read_options({**GIVEN, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=True)


def test_a_batch_starts_at_the_beginning_and_a_stream_at_the_end():
    assert (batch().starting.kind, batch().ending.kind) == (PositionKind.EARLIEST, PositionKind.LATEST)
    assert stream().starting.kind is PositionKind.LATEST
    assert batch().topics == ("Orders",)


def test_names_are_compared_without_regard_to_case():
    assert read_options({"nameserver": "h:1", "TOPIC": "a, b", "PULLDEPTH": "3"}, streaming=False).pull_depth == 3


@pytest.mark.parametrize(
    ("name", "meant"),
    [("startingOffset", "startingOffsets"), ("nameServers", "nameServer"), ("rocketmq.useTls2", "rocketmq.useTLS")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name, meant):
    with pytest.raises(BadOption, match=f"no option {name!r}.*{meant!r}"):
        read_options({**GIVEN, name: "1"}, streaming=False)


def test_an_option_like_no_other_is_refused_with_all_names():
    with pytest.raises(BadOption, match=r"known are .*minPartitions"):
        read_options({**GIVEN, "xyzzy": "1"}, streaming=False)


def test_an_option_of_streams_has_no_effect_on_a_batch_and_is_warned_about(caplog):
    assert batch(maxOffsetsPerTrigger="5").trigger_rows_max is None
    assert "maxOffsetsPerTrigger" in caplog.text
    assert stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2", maxTriggerDelay="30s").trigger_rows_max == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nameServer": ""}, "nameServer is missing"),
        ({"nameServer": "localhost"}, "not host:port"),
        ({"subscribe": "Other"}, "exactly one of .* there are topic, subscribe"),
        ({"topic": " , "}, "give topics"),
        ({"startingOffsets": "latest"}, "reads nothing in a batch"),
        ({"startingOffsets": "group"}, "needs consumerGroup"),
        ({"startingOffsets": "{"}, "not JSON"),
        ({"startingOffsets": '{"Orders":{"broker-a":{"0":-3}}}'}, "queue 0 is set to -3"),
        ({"startingOffsets": '{"Orders":{"broker-a":{"x":3}}}'}, "'x' is not a queue number"),
        ({"startingOffsets": '{"Orders":[1]}'}, "not a JSON object"),
        ({"startingOffsets": '{"Orders":{"broker-a":{"0":-1}}}'}, "-1 .latest."),
        ({"endingOffsets": "earliest"}, "cannot be an end"),
        ({"endingOffsets": '{"Orders":{"broker-a":{"0":-2}}}'}, "-2 .earliest."),
        ({"minPartitions": "0"}, "from 1 on"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"readFrom": "slaves"}, "did you mean 'slave'"),
        ({"startingTimestamp": "today"}, "is not a time: write 2026-11-15T10:00"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "error, latest"),
        ({"accessKey": "me"}, "belong together"),
        ({"topic": "", "subscribePattern": "("}, "not a regular expression"),
        ({"topic": "", "assign": '{"Orders":{"broker-a":3}}'}, "not a list of queues"),
    ],
)
def test_a_value_that_cannot_be_used_says_what_to_write_instead(more, message):
    with pytest.raises(BadOption, match=message):
        batch(**more)


def test_a_batch_that_could_never_be_made_is_refused():
    with pytest.raises(BadOption, match="minOffsetsPerTrigger 5 is above"):
        stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
    with pytest.raises(BadOption, match="commitOffsetsToGroup needs consumerGroup"):
        stream(commitOffsetsToGroup="true")


def test_a_time_counts_before_times_and_times_before_offsets():
    each, offsets = '{"Orders":{"broker-a":{"0":7}}}', '{"Orders":{"broker-a":{"0":1}}}'
    all_three = {"startingTimestamp": "5", "startingOffsetsByTimestamp": each, "startingOffsets": offsets}
    assert batch(**all_three).starting.time_ms == 5
    assert batch(startingOffsetsByTimestamp=each, startingOffsets=offsets).starting.numbers == {A0: 7}
    assert batch(startingOffsets=offsets).starting.numbers == {A0: 1}


def test_secrets_do_not_show():
    options = batch(accessKey="my-access", secretKey="my-secret", rocketmq__securityToken="my-token")
    assert options.cluster.credentials is not None
    assert "my-" not in repr(options)


def test_offsets_of_a_stream_are_sorted_text_and_plain_numbers():
    offsets = encode_offsets({A1: 2, A0: 1, MessageQueue("A", "b@x", 12): 3})
    assert list(offsets.items()) == [("A@b@x@12", 3), ("Orders@broker-a@0", 1), ("Orders@broker-a@1", 2)]
    assert decode_offsets(offsets)[MessageQueue("A", "b@x", 12)] == 3


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("128m", 128 << 20), ("1 GiB", 1 << 30), ("2kb", 2048)])
def test_sizes_have_units(text, size):
    assert OptionValues({"s": text}, known=["s"]).size("s") == size


@pytest.mark.parametrize(("text", "ms"), [("500", 500), ("2s", 2000), ("15m", 900_000), ("1h", 3_600_000)])
def test_durations_have_units(text, ms):
    assert OptionValues({"d": text}, known=["d"]).duration_ms("d", 0) == ms


@pytest.mark.parametrize(
    "text", ["1763200800000", "2025-11-15T10:00", "2025-11-15T11:00:00+01:00", "2025-11-15 10:00Z"]
)
def test_a_time_is_milliseconds_or_iso_text_and_utc_without_a_zone(text):
    given = {"nameServer": "a:1", "topic": "Orders", "startingTimestamp": text, "endingTimestamp": text}
    options = read_options(given, streaming=False)
    assert options.starting == options.ending == Position(PositionKind.TIME, time_ms=1_763_200_800_000)
