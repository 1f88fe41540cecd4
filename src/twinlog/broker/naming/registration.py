"""The requests with which a broker registers, without sending them.

A registration normally carries the whole topic table. It goes in slices when it would not fit a frame, or when
enableSplitRegistration is set. A name server changes a topic that it knows only for a data version that it has not
seen, so each slice but the last carries a version of its own.

Each topic is encoded once, whatever the number of slices. `encode_plain` defines the body; a test holds it equal to
what `_Plain` puts together from its parts.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.addresses import java_address_text
from twinlog.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_body
from twinlog.wire.fields import encode_fields
from twinlog.wire.frame import FRAME_BYTES_MAX
from twinlog.wire.headers import RegisterBrokerHeader
from twinlog.wire.java_json.fastjson import dumps, quote
from twinlog.wire.values.topic_bits import READ_WRITE

if TYPE_CHECKING:
    from twinlog.settings.broker_conf import BrokerConf

BODY_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024  # leaves space for the header
PAUSE_ROWS = 1_000
_NO_TOPICS = b'"topicConfigTable":{}'
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """One REGISTER_BROKER request."""

    fields: dict[str, str]
    body: bytes


def plan_registration(
    conf: BrokerConf,
    topics: Mapping[str, TopicConfig],
    version: DataVersion,
    pause: Callable[[], object] = lambda: None,
) -> Iterator[RegisterRequest]:
    """The requests that register `topics`: one, or as many as it takes.

    `pause` is called after every thousand topics. A thread that makes a large registration releases the interpreter
    lock there.
    """
    form = _Compressed if conf.broker.register_compressed else _Plain
    rows: list[bytes] = []
    for at, config in enumerate(_masked(topics.values(), conf.broker.permission), 1):
        rows.append(form.row(config))
        if at % PAUSE_ROWS == 0:
            pause()
    size = conf.broker.register_split_topics if conf.broker.register_split else max(len(rows), 1)
    slices = deque([rows[at : at + size] for at in range(0, len(rows), size)] or [[]])
    number = 0
    while slices:
        part = slices.popleft()
        number += 1
        tagged = msgspec.structs.replace(version, counter=version.counter + (number << 32)) if slices else version
        body = form.body(part, tagged)
        pause()
        if len(body) <= BODY_BYTES_MAX or len(part) < 2:
            yield RegisterRequest(_fields(conf, body), body)
        else:
            middle = len(part) // 2
            slices.extendleft((part[middle:], part[:middle]))


def _fields(conf: BrokerConf, body: bytes) -> dict[str, str]:
    settings = conf.broker
    header = RegisterBrokerHeader(
        broker_name=settings.broker_name,
        broker_addr=settings.address,
        cluster_name=settings.cluster_name,
        ha_server_addr=java_address_text(settings.broker_ip2, conf.replication.listen_port),
        broker_id=settings.broker_id,
        enable_acting_master=False,
        compressed=settings.register_compressed,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return encode_fields(header)


def encode_plain(rows: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """The body as JSON."""
    table = TopicConfigTable(
        topic_config_table={config.topic_name: config for config in rows},
        data_version=version,
        mapping_data_version=DataVersion(),
        topic_queue_mapping_info_map={},
        topic_queue_mapping_detail_map={},
    )
    return encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=table, filter_server_list=[]))


class _Plain:
    """The JSON form, from topics that are encoded already."""

    @staticmethod
    def row(config: TopicConfig) -> bytes:
        name, order = quote(config.topic_name), "true" if config.order else "false"
        attributes = dumps(config.attributes).decode() if config.attributes else "{}"
        return (
            f'{name}:{{"attributes":{attributes},"order":{order},"perm":{config.perm},'
            f'"readQueueNums":{config.read_queue_nums},"topicFilterType":{quote(config.topic_filter_type)},'
            f'"topicName":{name},"topicSysFlag":{config.topic_sys_flag},"writeQueueNums":{config.write_queue_nums}}}'
        ).encode()

    @staticmethod
    def body(rows: list[bytes], version: DataVersion) -> bytes:
        before, after = encode_plain([], version).split(_NO_TOPICS)
        return b"".join((before, _NO_TOPICS[:-1], b",".join(rows), b"}", after))


class _Compressed:
    """The same as zlib over length-prefixed parts; order and topicSysFlag are not part of this form."""

    @staticmethod
    def row(config: TopicConfig) -> bytes:
        attributes = dumps(config.attributes).decode()
        words = (
            config.topic_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_filter_type,
            attributes,
        )
        return _part(" ".join(map(str, words)).encode())

    @staticmethod
    def body(rows: list[bytes], version: DataVersion) -> bytes:
        parts = [_part(dumps(version)), _INT.pack(len(rows)), *rows]
        parts += (_part(b"[]"), _INT.pack(0))  # no filter servers, no queue mappings
        return zlib.compress(b"".join(parts), 9)


def _part(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _masked(rows: Iterable[TopicConfig], permission: int) -> list[TopicConfig]:
    """The topics, each with only those permissions that the broker has too."""
    if permission & READ_WRITE == READ_WRITE:
        return list(rows)
    return [msgspec.structs.replace(row, perm=row.perm & permission) for row in rows]
