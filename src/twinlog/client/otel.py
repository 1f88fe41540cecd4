"""OpenTelemetry spans of sends and listener calls, as hooks. Needs the extra `otel` (opentelemetry-api).

    from twinlog.client.otel import consume_spans, send_spans

    Producer(names, "shop", producer_options=ProducerOptions(hooks=[send_spans()]))
    PushConsumer(names, "billing", listen, consumer_options=ConsumerOptions(hooks=[consume_spans()]))

A send is a span of kind PRODUCER, whose W3C `traceparent` (and `tracestate`) travels in the properties of the message.
A listener call is a span of kind CONSUMER, linked to the spans of the sends. It is current while the listener runs, so
that spans of the listener are its children. Names and attributes follow the conventions for messaging.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from twinlog import __version__
from twinlog.client.consuming.listener import Consuming
from twinlog.client.hooks import Hook
from twinlog.client.sending.outgoing import body_bytes
from twinlog.client.sending.send_hooks import Sending, SendKind

_W3C = TraceContextTextMapPropagator()
_KINDS = {SendKind.NORMAL: "normal", SendKind.HALF: "transaction", SendKind.DELAYED: "delay"}


def send_spans(provider: TracerProvider | None = None) -> Hook[Sending]:
    """A hook for `ProducerOptions.hooks`; the tracer is that of `provider`, else the global one."""
    tracer = _tracer(provider)

    @contextmanager
    def span_of(call: Sending) -> Iterator[None]:
        first = call.messages[0]
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": first.topic,
            "messaging.rocketmq.message.type": "fifo" if first.sharding_key else _KINDS[call.kind],
            **_about([(message.tags, message.keys, len(body_bytes(message.body))) for message in call.messages]),
        }
        with tracer.start_as_current_span(
            f"send {first.topic}", kind=SpanKind.PRODUCER, attributes=attributes, set_status_on_exception=False
        ) as span:
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            call.messages[:] = [
                dataclasses.replace(message, properties={**message.properties, **carrier}) for message in call.messages
            ]
            yield
            if call.result is not None:
                span.set_attribute("messaging.message.id", call.result.message_id)
                span.set_attribute("messaging.destination.partition.id", str(call.result.queue.queue_id))
            _end(span, call.error)

    return span_of


def consume_spans(provider: TracerProvider | None = None) -> Hook[Consuming]:
    """A hook for `ConsumerOptions.hooks`; the tracer is that of `provider`, else the global one."""
    tracer = _tracer(provider)

    @contextmanager
    def span_of(call: Consuming) -> Iterator[None]:
        first = call.messages[0]
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.consumer.group.name": call.group,
            "messaging.message.id": first.message_id,
            **_about([(message.tags, message.keys, len(message.body)) for message in call.messages]),
        }
        producers = [
            trace.get_current_span(_W3C.extract(message.properties, Context())).get_span_context()
            for message in call.messages
        ]
        links = [Link(each) for each in producers if each.is_valid]
        with tracer.start_as_current_span(
            f"process {first.topic}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            set_status_on_exception=False,
        ) as span:
            yield
            _end(span, call.error, ok=call.ok)

    return span_of


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("twinlog.client", __version__, provider)


def _about(messages: list[tuple[str, list[str], int]]) -> dict[str, str | int | list[str]]:
    """Attributes that one message has, or all of a batch together."""
    tags, keys, _ = messages[0]
    about: dict[str, str | int | list[str]] = {"messaging.message.body.size": sum(size for _, _, size in messages)}
    if len(messages) > 1:
        about["messaging.batch.message_count"] = len(messages)
    if tags:
        about["messaging.rocketmq.message.tag"] = tags
    if keys:
        about["messaging.rocketmq.message.keys"] = keys
    return about


def _end(span: Span, error: BaseException | None, *, ok: bool = True) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    elif not ok:
        span.set_status(Status(StatusCode.ERROR, "the message comes again"))
