"""The requests with which a broker registers, without sending them.

A registration normally carries the whole topic table. It goes in slices when it would not fit a frame, or when
enableSplitRegistration is set. A name server changes a topic that it knows only for a data version that it has not
seen, so each slice but the last carries a version of its own.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.addresses import java_address_text
from twinlog.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_body
from twinlog.wire.fields import encode_fields
from twinlog.wire.frame import FRAME_BYTES_MAX
from twinlog.wire.headers import RegisterBrokerHeader
from twinlog.wire.java_json.fastjson import dumps
from twinlog.wire.topic_bits import READ_WRITE

if TYPE_CHECKING:
    from twinlog.settings.broker_conf import BrokerConf

BODY_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024  # leaves space for the header
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """One REGISTER_BROKER request."""

    fields: dict[str, str]
    body: bytes


def plan_registration(
    conf: BrokerConf, topics: Mapping[str, TopicConfig], version: DataVersion
) -> Iterator[RegisterRequest]:
    """The requests that register `topics`: one, or as many as it takes."""
    masked = _masked(topics.values(), conf.broker.permission)
    size = conf.broker.register_split_topics if conf.broker.register_split else max(len(masked), 1)
    slices = [masked[at : at + size] for at in range(0, len(masked), size)] or [[]]
    yield from _plan_slices(conf, deque(slices), version)


def _plan_slices(conf: BrokerConf, slices: deque[list[TopicConfig]], version: DataVersion) -> Iterator[RegisterRequest]:
    number = 0
    while slices:
        rows = slices.popleft()
        number += 1
        tagged = msgspec.structs.replace(version, counter=version.counter + (number << 32)) if slices else version
        registration = _registration(conf, rows, tagged)
        if len(registration.body) <= BODY_BYTES_MAX or len(rows) < 2:
            yield registration
        else:
            middle = len(rows) // 2
            slices.extendleft((rows[middle:], rows[:middle]))


def _registration(conf: BrokerConf, rows: list[TopicConfig], version: DataVersion) -> RegisterRequest:
    settings = conf.broker
    body = encode_compressed(rows, version) if settings.register_compressed else encode_plain(rows, version)
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
    return RegisterRequest(encode_fields(header), body)


def encode_plain(rows: Iterable[TopicConfig], version: DataVersion) -> bytes:
    table = TopicConfigTable(
        topic_config_table={config.topic_name: config for config in rows},
        data_version=version,
        mapping_data_version=DataVersion(),
        topic_queue_mapping_info_map={},
        topic_queue_mapping_detail_map={},
    )
    return encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=table, filter_server_list=[]))


def encode_compressed(rows: list[TopicConfig], version: DataVersion) -> bytes:
    """The same as zlib over length-prefixed parts; order and topicSysFlag are not part of this form."""
    parts = [_part(dumps(version)), _INT.pack(len(rows))]
    for row in rows:
        attributes = dumps(row.attributes).decode()
        words = (row.topic_name, row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_filter_type, attributes)
        parts.append(_part(" ".join(map(str, words)).encode()))
    parts += (_part(b"[]"), _INT.pack(0))  # no filter servers, no queue mappings
    return zlib.compress(b"".join(parts), 9)


def _part(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _masked(rows: Iterable[TopicConfig], permission: int) -> list[TopicConfig]:
    """The topics, each with only those permissions that the broker has too."""
    if permission & READ_WRITE == READ_WRITE:
        return list(rows)
    return [msgspec.structs.replace(row, perm=row.perm & permission) for row in rows]
