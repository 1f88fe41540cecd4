"""The options of `format("rocketmq")` writes; read once, in the driver, and sent to the workers as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.client.errors import BadMessage
from twinlog.client.name_rules import check_topic
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, ClusterOptions, cluster_options
from twinlog.spark.errors import BadOption
from twinlog.spark.option_values import OptionValues

MESSAGE_BYTES_MAX = 4 * 1024 * 1024  # the default limit of brokers
BATCH_BYTES = 1024 * 1024

_BOTH = (
    *CLUSTER_OPTIONS,
    "topic",
    "deliverAt",
    "producerGroup",
    "sendTimeoutMs",
    "numRetries",
    "retryPauseMs",
    "maxInFlight",
    "batchBytes",
    "maxMessageBytes",
    "compressBodyOverBytes",
    "compression",
    "unsafeAcks",
    "reservedProperties",
    "idempotent",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_BATCH = ("writeId",)
_PAUSE_S_MAX = 2.0
_SPARKS_OWN = ("checkpointLocation", "queryName", "path")  # Spark passes them to every sink


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """One write: where to, how, and how safely."""

    cluster: ClusterOptions
    topic: str | None = None
    deliver_at_ms: int | None = None  # for rows without a time of their own
    group: str = "spark-rocketmq-sink"
    send_timeout_ms: int = 3_000
    retries: int = 6  # of one request
    retry_pause_ms: int = 100  # doubles with each retry, up to 2 s
    in_flight_max: int = 8  # requests per broker
    batch_bytes: int = BATCH_BYTES
    message_bytes_max: int = MESSAGE_BYTES_MAX
    compress_over_bytes: int | None = None
    compression: str = "zlib"
    fails_when_unsafe: bool = False
    drops_reserved: bool = False
    idempotent: bool = False
    write_id: str | None = None

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return min(_PAUSE_S_MAX, self.retry_pause_ms / 1000 * 2 ** (failures - 1))


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a write; BadOption names the first invalid one, and what to write instead."""
    known = (*_BOTH, *_SPARKS_OWN) if streaming else (*_BOTH, *_BATCH, *_SPARKS_OWN)
    values = OptionValues(given, known=known, ignored=_BATCH if streaming else ())
    topic = values.text("topic")
    if topic is not None:
        _check_topic(topic)
    message_bytes_max = values.size("maxMessageBytes", MESSAGE_BYTES_MAX)
    batch_bytes = values.size("batchBytes", min(BATCH_BYTES, message_bytes_max or 1))
    assert message_bytes_max is not None and batch_bytes is not None
    if batch_bytes > message_bytes_max:
        raise BadOption(
            f"batchBytes {batch_bytes} is above maxMessageBytes {message_bytes_max}: a broker accepts a batch"
            " only up to the size of one message; give less"
        )
    idempotent = values.flag("idempotent", False)
    write_id = None if streaming else values.text("writeId")
    if idempotent and not streaming and write_id is None:
        raise BadOption(
            "idempotent=true needs writeId in a batch: a name for these rows, the same each time they are written"
        )
    if write_id is not None and not idempotent:
        raise BadOption(f"writeId {write_id!r} has an effect only with idempotent=true: give both, or leave it out")
    return WriteOptions(
        cluster=cluster_options(values),
        topic=topic,
        deliver_at_ms=values.moment_ms("deliverAt"),
        group=values.text("producerGroup") or "spark-rocketmq-sink",
        send_timeout_ms=values.integer("sendTimeoutMs", 3_000, low=1),
        retries=values.integer("numRetries", 6),
        retry_pause_ms=values.integer("retryPauseMs", 100),
        in_flight_max=values.integer("maxInFlight", 8, low=1),
        batch_bytes=batch_bytes,
        message_bytes_max=message_bytes_max,
        compress_over_bytes=values.size("compressBodyOverBytes"),
        compression=values.choice("compression", "zlib", ("zlib", "lz4", "zstd")),
        fails_when_unsafe=values.choice("unsafeAcks", "warn", ("warn", "fail")) == "fail",
        drops_reserved=values.choice("reservedProperties", "refuse", ("refuse", "drop")) == "drop",
        idempotent=idempotent,
        write_id=write_id,
    )


def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except BadMessage as error:
        raise BadOption(f"option topic: {error}") from error
