import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from twinlog.spark.errors import BadOption, BadSchema
from twinlog.spark.source import RocketmqSource
from twinlog.spark.writing.columns import check_columns
from twinlog.spark.writing.options import write_options

GIVEN = {"nameServer": "127.0.0.1:9876", "topic": "Orders"}


def batch(**more):
    return write_options({**GIVEN, **more}, streaming=False)


def test_a_stream_gets_sparks_own_options_too():
    given = {**GIVEN, "checkpointlocation": "/c", "queryname": "q"}
    assert write_options(given, streaming=True).topic == "Orders"


def test_names_are_compared_without_regard_to_case():
    assert batch(BATCHBYTES="64k", maxinflight="3").batch_bytes == 64 * 1024


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"numRetry": "1"}, "no option 'numRetry'.*did you mean 'numRetries'"),
        ({"startingOffsets": "earliest"}, "no option 'startingOffsets'"),
        ({"topic": "a,b"}, "topic 'a,b' is not a valid name"),
        ({"maxInFlight": "0"}, "maxInFlight is '0'"),
        ({"batchBytes": "5m"}, "above maxMessageBytes 4194304"),
        ({"compression": "gzip"}, "compression is 'gzip'.*zlib"),
        ({"unsafeAcks": "ignore"}, "unsafeAcks is 'ignore'.*warn"),
        ({"idempotent": "true"}, "needs writeId"),
        ({"writeId": "load-7"}, "has an effect only with idempotent=true"),
        ({"accessKey": "me"}, "belong together"),
    ],
)
def test_an_option_that_cannot_be_used_says_what_to_write(given, message):
    with pytest.raises(BadOption, match=message):
        batch(**given)


def test_secrets_do_not_show():
    assert "hidden" not in repr(batch(accessKey="me", secretKey="hidden"))


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
    "struct<a:int>": StructType([StructField("a", IntegerType())]),
}


def schema_of(ddl: str) -> StructType:
    """Spark's own parser would need a JVM."""
    pairs = [column.split(" ") for column in ddl.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def check(ddl: str, *, topic_given: bool = True) -> None:
    check_columns(schema_of(ddl), topic_given=topic_given)


def test_every_column_may_be_there():
    check(
        "body binary, topic string, tags string, keys string, properties map<string,string>, flag int, delayLevel int, "
        "deliverAt timestamp, queueId int, shardingKey string, brokerName string",
        topic_given=False,
    )
    check("body string")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("body string, tag string", "no column 'tag': did you mean 'tags'"),
        ("body string, offset bigint", "no column 'offset'.*select the columns"),
        ("body bigint", r"'body' is bigint, a message has string or binary.*cast\(body as string\)"),
        ("body struct<a:int>", "to_json"),
        ("body string, queueId bigint", r"'queueId' is bigint, a message has int there: write cast\(queueId as int\)"),
        ("body string, properties map<string,int>", "a map from string to string"),
        ("value string, tags string", "no column 'value'"),
        ("tags string", "column 'body' is missing"),
        ("body string, body string", "twice"),
    ],
)
def test_a_column_that_is_not_part_of_a_message_is_refused(ddl, message):
    with pytest.raises(BadSchema, match=message):
        check(ddl)


def test_a_topic_is_named_by_option_or_column():
    with pytest.raises(BadSchema, match="no topic: give option topic, or a column"):
        check("body string", topic_given=False)


def test_overwriting_is_refused():
    schema = schema_of("body string")
    with pytest.raises(BadOption, match=r'mode\("append"\)'):
        RocketmqSource(GIVEN).writer(schema, overwrite=True)
    with pytest.raises(BadOption, match=r'outputMode\("append"\)'):
        RocketmqSource(GIVEN).streamWriter(schema, overwrite=True)
