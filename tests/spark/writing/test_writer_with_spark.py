"""Writing inside a real Spark: what only Spark can show, with each trap on the way to a sink."""

import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from tests.spark.topics import numbers
from tests.spark.writing.written import rows_of, task

from twinlog.spark.cluster import Cluster
from twinlog.spark.writing.stamps import STAMP_PROPERTY

pytestmark = pytest.mark.timeout(300)


def save(frame, topic, mode="append", **more):
    frame.write.format("rocketmq").options(**topic.options(**more)).mode(mode).save()


def stream(spark, source, target, checkpoint: Path, **more):
    """Copy what `source` holds and `target` has not got yet."""
    rows = spark.readStream.format("rocketmq").options(**source.options(startingOffsets="earliest", minPartitions=2))
    rows = rows.load().select("body")
    writer = rows.writeStream.format("rocketmq").options(**target.options(**more))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return query


def forget_last_commit(checkpoint: Path) -> None:
    """Spark runs the last batch again when its commit file is gone."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink()


def stamps_of(topic) -> list[tuple[str, ...]]:
    return [tuple(dict(row["properties"])[STAMP_PROPERTY].split("/")) for row in rows_of(topic)]


def test_a_frame_is_written_with_every_column(spark, make_topic):
    topic = make_topic(queues=4)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) body",
        "if(id % 2 = 0, 'even', null) tags",
        "concat('key-', id) keys",
        "map('n', cast(id as string)) properties",
        "cast(id as int) flag",
        "if(id % 3 = 0, concat('s', id % 5), null) shardingKey",
    )
    save(frame.repartition(3), topic)
    rows = {int(row["body"]): row for row in rows_of(topic)}
    assert len(rows) == 1000
    row = rows[42]
    assert (row["tags"], row["keys"], row["flag"]) == ("even", "key-42", 42)
    assert dict(row["properties"])["n"] == "42"
    assert dict(row["properties"])["__SHARDINGKEY"] == "s2"
    assert {row["queueId"] for n, row in rows.items() if n % 15 == 0} == {rows[0]["queueId"]}


def test_what_cannot_be_written_is_refused_before_anything_is_sent(spark, make_topic):
    topic = make_topic()
    body = spark.range(3).selectExpr("cast(id as string) body")
    with pytest.raises(PySparkException, match="messages are only ever added"):
        save(body, topic, mode="overwrite")
    with pytest.raises(PySparkException, match="no column 'tag': did you mean 'tags'"):
        save(body.selectExpr("body", "'x' tag"), topic)
    with pytest.raises(PySparkException, match="did you mean 'batchBytes'"):
        save(body, topic, batchByte="1m")
    with pytest.raises(PySparkException, match=r"row 2 of partition \d: body is null"):
        save(spark.range(0, 3, 1, 1).selectExpr("if(id = 2, null, 'x') body").coalesce(1), topic, numRetries=0)
    with pytest.raises(PySparkException, match=r"no option '(?i:startingOffsets)'"):
        save(body, topic, startingOffsets="earliest")
    assert topic.read() == []


def test_a_number_as_body_is_refused_with_the_cast_that_works(spark, make_topic):
    """Trap 17: the obvious cast to binary is an error of Spark's own in ANSI mode, so the error names the other one."""
    topic = make_topic()
    with pytest.raises(PySparkException, match=r"'body' is bigint.*cast\(body as string\)"):
        save(spark.range(3).selectExpr("id body"), topic)
    with pytest.raises(AnalysisException, match="CAST_WITH"):
        spark.range(3).selectExpr("cast(id as binary) body")
    save(spark.range(3).selectExpr("cast(id as string) body"), topic)
    assert sorted(topic.read()) == ["0", "1", "2"]


def failing_once(marker: Path, topic):
    """A function over Arrow batches of one task that fails once rows of its first attempt are stored."""
    options, queues = task(topic)._options.cluster, [topic.queue(n) for n in range(3)]

    def run(batches):
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if seen > 4000 and not marker.exists():
                end = time.monotonic() + 30
                while not (stored := sum(Cluster(options).max_offsets(queues).values())) and time.monotonic() < end:
                    time.sleep(0.05)
                marker.write_text(str(stored))
                raise RuntimeError("fails once")

    return run


def numbered_frame(spark, count: int):
    """Rows of one task, large enough that Spark does not keep them all back in its buffers."""
    return spark.range(0, count, 1, 1).selectExpr("concat(id, ' ', repeat('x', 1000)) body")


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_task_that_is_tried_again_writes_rows_twice_unless_idempotent(spark, make_topic, tmp_path, idempotent):
    topic, marker = make_topic(queues=3), tmp_path / "failed"
    more = {"idempotent": "true", "writeId": "load-1"} if idempotent else {}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        save(numbered_frame(spark, 8000).mapInArrow(failing_once(marker, topic), "body string"), topic, **more)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert int(marker.read_text()) > 0  # rows were stored when the first attempt failed
    found = [body.split()[0] for body in topic.read()]
    assert set(found) == set(numbers(8000))
    if idempotent:
        assert len(found) == 8000
        assert {stamp[0] for stamp in stamps_of(topic)} == {"load-1"}
        save(numbered_frame(spark, 8000), topic, **more)  # the whole job once more
        assert len(topic.read()) == 8000
    else:
        assert len(found) > 8000


def test_a_stream_is_written_and_a_replayed_batch_is_known_again(spark, make_topic, tmp_path):
    """Traps 14 and 15: the batch and query seen inside `write` are the same again when a batch is replayed."""
    source, target, check = make_topic(queues=2), make_topic(queues=3), tmp_path / "check"
    source.send_numbers(300, queue=0)
    source.send_numbers(300, queue=1, start=300)
    first = stream(spark, source, target, check, idempotent="true")
    assert sorted(target.read(), key=int) == numbers(600)
    forget_last_commit(check)
    source.send_numbers(100, queue=0, start=600)
    again = stream(spark, source, target, check, idempotent="true")
    assert sorted(target.read(), key=int) == numbers(700)
    assert first.id == again.id
    stamps = stamps_of(target)
    assert {stamp[0] for stamp in stamps} == {first.id}
    assert {stamp[1] for stamp in stamps} == {"0", "1"}
    assert len(set(stamps)) == 700


def test_a_replayed_batch_is_written_twice_without_idempotence(spark, make_topic, tmp_path):
    source, target, check = make_topic(queues=1), make_topic(queues=1), tmp_path / "check"
    source.send_numbers(50)
    stream(spark, source, target, check)
    forget_last_commit(check)
    stream(spark, source, target, check)
    assert sorted(target.read(), key=int) == sorted(numbers(50) * 2, key=int)


def test_a_stream_that_is_stopped_in_the_middle_goes_on_without_a_gap(spark, make_topic, tmp_path):
    """Trap 15: a task that is killed may have written. Its rows are found by the next run."""
    source, target, check = make_topic(queues=2), make_topic(queues=3), tmp_path / "check"
    source.send_numbers(4000, queue=0)
    source.send_numbers(4000, queue=1, start=4000)
    rows = spark.readStream.format("rocketmq").options(**source.options(startingOffsets="earliest")).load()
    hurry = tmp_path / "hurry"

    def slowly(batches):
        for batch in batches:
            yield batch
            time.sleep(0 if hurry.exists() else 0.4)

    def run(until_stopped: bool):
        wide = rows.selectExpr("concat(decode(body, 'utf-8'), ' ', repeat('x', 500)) body")
        writer = wide.mapInArrow(slowly, "body string").writeStream.format("rocketmq")
        writer = writer.options(**target.options(idempotent="true", batchBytes="20k"))
        query = writer.option("checkpointLocation", str(check)).trigger(availableNow=True).start()
        if until_stopped:
            end = time.monotonic() + 60
            while not target.read():
                assert time.monotonic() < end, "nothing was written"
                time.sleep(0.1)
            query.stop()
        else:
            assert query.awaitTermination(120)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        run(until_stopped=True)
        assert len(target.read()) < 8000
        hurry.touch()
        time.sleep(1)  # the window that remains: a send that is still on its way when it is looked up
        run(until_stopped=False)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted((body.split()[0] for body in target.read()), key=int) == numbers(8000)
