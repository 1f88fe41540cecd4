"""`spark.read.format("rocketmq").option("kind", ...)`: the metadata of live brokers, masters and replicas, as tables.

Each task asks one broker. A replica gives its own copy, so a join of both shows how far it has followed its master.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.client.errors import ClientError
from twinlog.metadata.timer_check import progress_of_master
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, ClusterOptions, cluster_options
from twinlog.spark.errors import BadOption, CannotRead, errors_without_traceback
from twinlog.spark.live_broker import LiveBroker
from twinlog.spark.option_values import OptionValues
from twinlog.spark.reading.metadata_rows import TABLE_OF_KIND, TIMER, check_progress, metadata_batch, metadata_columns
from twinlog.spark.schema import METADATA_KINDS, Columns
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicStats, decode_body
from twinlog.wire.codes import MASTER_ID, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)
_OWN = ("kind", "readFrom", "failOnDataLoss", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
_NO_TIMER = (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)  # switched off; Java 4 has none
_NO_TOPIC = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR)
CHOOSING = ("topic", "subscribe", "subscribePattern", "assign", "retriesOf", "deadLettersOf")
_ENDS = ("minOffset", "maxOffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """One read: which table, and of which brokers."""

    cluster: ClusterOptions
    kind: str
    read_from: str = "any"
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class AskedBroker:
    """One task: the broker that it asks."""

    name: str
    number: int
    address: str


def metadata_options(given: Mapping[str, str]) -> MetadataOptions:
    """The options of a read of metadata; BadOption names the first invalid one."""
    values = OptionValues(given, known=(*CLUSTER_OPTIONS, *_OWN, *CHOOSING))
    kind = values.choice("kind", METADATA_KINDS[0], METADATA_KINDS)
    for name in CHOOSING:
        if name in values:
            raise BadOption(f"option {name} chooses messages, and kind={kind} has none: filter its rows with where()")
    return MetadataOptions(
        cluster=cluster_options(values),
        kind=kind,
        read_from=values.choice("readFrom", "any", ("master", "slave", "any")),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
    )


@errors_without_traceback
class MetadataReader(DataSourceReader):
    """One table of metadata, of all brokers that the name server knows."""

    def __init__(self, options: MetadataOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        found = []
        for name, broker in sorted(Cluster(self._options.cluster).info().broker_addr_table.items()):
            for number, address in sorted(broker.broker_addrs.items()):
                role = "master" if number == MASTER_ID else "slave"
                if self._options.read_from in ("any", role):
                    found.append(AskedBroker(name, number, address))
        return [InputPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        one: AskedBroker | None = partition.value
        if one is None:
            return
        try:
            values = read_metadata(LiveBroker(one.address, self._options.cluster), self._options.kind, self._columns)
        except (NetError, ClientError, WireError) as error:
            problem = f"broker {one.name} ({one.number}) at {one.address} gives no {self._options.kind}: {error}"
            if self._options.fail_on_data_loss:
                raise CannotRead(f"{problem}; set failOnDataLoss=false to read the others") from error
            log.warning("the rows of a broker are missing", broker=one.name, address=one.address, error=str(error))
            return
        if values:
            yield metadata_batch(self._columns, values, brokerName=one.name, brokerId=one.number, address=one.address)


def read_metadata(broker: LiveBroker, kind: str, columns: Columns) -> dict[str, Any]:
    """The columns of one broker's table; empty if it has no rows."""
    if kind == TIMER:
        answer = broker.ask(RequestCode.GET_TIMER_CHECK_POINT, accepts=_NO_TIMER)
        has_timer = answer.code == ResponseCode.SUCCESS and answer.body
        progress = check_progress(progress_of_master(bytes(answer.body))) if has_timer else None
        return dict(metadata_columns(kind, progress))
    values = dict(metadata_columns(kind, broker.table(TABLE_OF_KIND[kind])))
    if kind == "consumer_offsets" and values and any(name in columns for name in _ENDS):
        values |= _queue_ends(broker, values["topic"], values["queueId"])
    return values


def _queue_ends(broker: LiveBroker, topics: Any, queue_ids: Any) -> dict[str, list[int | None]]:
    """First and next offset of each queue at this broker; None for a topic that it does not have any more."""
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    commands = [Command(RequestCode.GET_TOPIC_STATS_INFO, fields={"topic": topic}) for topic in sorted(set(topics))]
    for answer in broker.ask_all(commands, accepts=_NO_TOPIC):
        if answer.code == ResponseCode.SUCCESS:
            stats = decode_body(TopicStats, bytes(answer.body))
            ends |= {
                (one.topic, one.queue_id): (at.min_offset, at.max_offset) for one, at in stats.offset_table.items()
            }
    found = [ends.get(place, (None, None)) for place in zip(topics, queue_ids, strict=True)]
    return {name: [pair[n] for pair in found] for n, name in enumerate(_ENDS)}
