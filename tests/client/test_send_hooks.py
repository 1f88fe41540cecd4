"""Hooks around sends, OpenTelemetry spans, and RocketMQ's message trace."""

import contextlib
import dataclasses

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.fake_cluster import FakeCluster, until

from twinlog.client import (
    BadMessage,
    Consumed,
    ConsumerOptions,
    Outcome,
    Outgoing,
    Producer,
    ProducerOptions,
    PushConsumer,
    SendKind,
    StartFrom,
)
from twinlog.client.otel import consume_spans, send_spans

TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


def producer(cluster: FakeCluster, **options) -> Producer:
    return Producer(cluster.address, "shop", producer_options=ProducerOptions(**options))


def stored(cluster: FakeCluster, topic: str) -> list:
    return [m for queue, messages in cluster.broker.queues.items() if queue.topic == topic for m in messages]


async def test_a_hook_sees_every_kind_of_send_and_may_change_the_message(cluster):
    seen = []

    @contextlib.contextmanager
    def stamp(call):
        call.messages[:] = [dataclasses.replace(m, properties={**m.properties, "stamp": "1"}) for m in call.messages]
        yield
        seen.append((call.kind, len(call.messages), call.result is not None, type(call.error)))

    given = Outgoing("T", b"x", properties={"color": "red"})
    async with producer(cluster, hooks=[stamp]) as sender:
        await sender.send(given)
        await sender.send_batch([Outgoing("T", b"1"), Outgoing("T", b"2")])
        await sender.send(Outgoing("T", b"later", delay_level=3))
        await sender.send_in_transaction(Outgoing("T", b"half"), lambda _: Outcome.COMMIT)
        await sender.send_oneway(Outgoing("T", b"oneway"))
        with pytest.raises(BadMessage):
            await sender.send(Outgoing("T", b""))
        await until(lambda: len(stored(cluster, "T")) == 6)
    normal, none = SendKind.NORMAL, type(None)
    assert seen == [
        (normal, 1, True, none),
        (normal, 2, True, none),
        (SendKind.DELAYED, 1, True, none),
        (SendKind.HALF, 1, True, none),
        (normal, 1, False, none),
        (normal, 1, False, BadMessage),
    ]
    assert given.properties == {"color": "red"}
    assert [message.properties.get("stamp") for message in stored(cluster, "T")] == ["1"] * 6


@pytest.mark.parametrize("threaded", [False, True])
async def test_the_span_of_a_listener_call_is_linked_to_that_of_the_send(cluster, spans, provider, threaded):
    tracer, got = provider.get_tracer("test"), []

    def listen_here(message) -> Consumed:
        with tracer.start_as_current_span("inside"):
            got.append(message)
        return Consumed.SUCCESS

    async def listen(message) -> Consumed:
        return listen_here(message)

    options = ConsumerOptions(start_from=StartFrom.FIRST, hooks=[consume_spans(provider)])
    reader = PushConsumer(cluster.address, "billing", listen_here if threaded else listen, consumer_options=options)
    reader.subscribe("T")
    async with producer(cluster, hooks=[send_spans(provider)]) as sender, reader:
        with tracer.start_as_current_span("outside"):
            sent = await sender.send(Outgoing("T", b"tea", tags="hot", keys=["k1", "k2"]))
        await until(lambda: len(spans.get_finished_spans()) == 4)
    by_name = {span.name: span for span in spans.get_finished_spans()}
    send, process = by_name["send T"], by_name["process T"]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.parent.span_id == by_name["outside"].context.span_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert by_name["inside"].parent.span_id == process.context.span_id
    assert got[0].properties["traceparent"].split("-")[2] == f"{send.context.span_id:016x}"
    assert send.attributes["messaging.message.id"] == process.attributes["messaging.message.id"] == sent.message_id
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert process.attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")


async def test_the_span_of_a_send_that_failed_has_its_error(cluster, spans, provider):
    async with producer(cluster, hooks=[send_spans(provider)]) as sender:
        with pytest.raises(BadMessage):
            await sender.send(Outgoing("T", b""))
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR and span.attributes["error.type"] == "BadMessage"


async def test_traces_of_sends_and_listener_calls_are_stored_with_ids_and_keys(cluster):
    async def listen(message) -> Consumed:
        return Consumed.RETRY if message.body == b"bad" else Consumed.SUCCESS

    cluster.create(TRACE)
    options = ConsumerOptions(start_from=StartFrom.FIRST, enable_trace=True)
    reader = PushConsumer(cluster.address, "billing", listen, consumer_options=options)
    reader.subscribe("T")
    async with producer(cluster, enable_trace=True) as sender, reader:
        good = await sender.send(Outgoing("T", b"good", tags="hot", keys=["k1", "k2"]))
        bad = await sender.send(Outgoing("T", b"bad"))
        await sender.send_in_transaction(Outgoing("T", b"half", keys="t"), lambda _: Outcome.ROLLBACK)
        await until(lambda: reader.listener.meters and sum(w.process.next_offset for w in reader.workers.values()) >= 2)
        await until(lambda: not any(len(worker.process) for worker in reader.workers.values()))
    records = stored(cluster, TRACE)
    lines = [line.split("\x01") for m in records for line in m.body.decode().split("\x02")[:-1]]
    (pub,) = [line for line in lines if line[0] == "Pub" and line[5] == good.message_id]
    assert pub[3:5] == ["shop", "T"] and pub[6:8] == ["hot", "k1 k2"] and pub[9] == "4"
    assert pub[11:] == ["0", good.offset_message_id, "true"] and ":" in pub[8]
    (before,) = [line for line in lines if line[0] == "SubBefore" and line[5] == bad.message_id]
    (after,) = [line for line in lines if line[0] == "SubAfter" and line[2] == bad.message_id]
    assert before[3] == "billing" and before[6:] == ["0", "null"] and after[1] == before[4]
    assert after[4:7] == ["false", "null", "4"] and after[8] == "billing"
    (end,) = [line for line in lines if line[0] == "EndTransaction"]
    assert end[7] == "t" and end[11:] == ["ROLLBACK_MESSAGE", "false"]
    keys = {key for record in records for key in record.keys}
    assert {good.message_id, bad.message_id, "k1", "k2", "t"} <= keys


async def test_odd_ids_and_keys_of_one_message_do_not_lose_the_traces_of_others(cluster, caplog):
    cluster.create(TRACE)
    async with producer(cluster, enable_trace=True) as sender:
        await sender.send(Outgoing("T", b"x", system_properties={"UNIQ_KEY": "an  id"}))
        await sender.send(Outgoing("T", b"x", keys="k" * 32_000))
        good = await sender.send(Outgoing("T", b"x"))
    records = stored(cluster, TRACE)
    assert len(records) == 3  # the large one has a message of its own
    assert {"an", "id", good.message_id} <= {key for record in records for key in record.keys}
    assert "failed" not in caplog.text


async def test_a_producer_works_when_its_traces_cannot_be_stored(cluster, caplog):
    cluster.topics.pop("TBW102")  # no topic is created by use
    cluster.create("T")
    async with producer(cluster, enable_trace=True) as sender:
        await sender.send(Outgoing("T", b"x"))
    assert "traces were not stored" in caplog.text
