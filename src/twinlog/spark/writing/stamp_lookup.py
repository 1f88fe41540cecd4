"""Finds messages of a stamped write on brokers by their unique keys (QUERY_MESSAGE), over its own connections.

Brokers index messages after they have acknowledged them. So before the first query, the lookup waits until a broker has
indexed all that its log held at the first request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from twinlog.client.consuming.pulling import unwrap
from twinlog.client.errors import BrokerRefused
from twinlog.net.errors import NetError
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import CannotWrite
from twinlog.spark.remoting import BlockingConnection, Response
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.bodies import KVTable, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import QueryMessageHeader
from twinlog.wire.message import Message, decode_messages

log = get_logger(__name__)
_KEYS_AT_ONCE = 64
_LONG_MAX = (1 << 63) - 1
_INDEX_S_MAX = 10.0
_INDEX_PAUSE_S = 0.02


class StampLookup:
    """Queries to brokers; must be closed."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._connections: dict[str, BlockingConnection] = {}

    def find(self, address: str, topic: str, keys: Sequence[str]) -> list[Message | None]:
        """For each unique key the message that the broker at `address` holds, or None."""
        found: list[Message | None] = []
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[begin : begin + _KEYS_AT_ONCE]
            answers = self._ask(address, [_query(topic, key) for key in part])
            found += [_message(address, key, answer) for key, answer in zip(part, answers, strict=True)]
        return found

    def wait_until_indexed(self, address: str) -> None:
        """Return when the index of a broker covers what its log holds now."""
        deadline = time.monotonic() + _INDEX_S_MAX
        goal = None
        while True:
            (answer,) = self._ask(address, [Command(RequestCode.GET_BROKER_RUNTIME_INFO)])
            if answer.code != ResponseCode.SUCCESS:
                log.warning("a broker does not report how far its index is", broker=address, remark=answer.remark)
                return
            table = decode_body(KVTable, bytes(answer.body)).table
            end, behind = int(table.get("commitLogMaxOffset", 0)), int(table.get("dispatchBehindBytes", 0))
            goal = end if goal is None else goal
            if end - behind >= goal:
                return
            if time.monotonic() > deadline:
                raise CannotWrite(
                    f"{address} is {goal - end + behind} bytes behind with its index after {_INDEX_S_MAX:.0f} s, so"
                    " what it holds of this write is unknown: check its disk, and try again"
                )
            time.sleep(_INDEX_PAUSE_S)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _ask(self, address: str, commands: list[Command]) -> list[Response]:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(address, self._options)
        try:
            return connection.ask(commands)
        except NetError:
            self._connections.pop(address).close()
            raise


def _query(topic: str, key: str) -> Command:
    header = QueryMessageHeader(topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=_LONG_MAX)
    fields = encode_fields(header) | {"_UNIQUE_KEY_QUERY": "true"}
    return Command(RequestCode.QUERY_MESSAGE, fields=fields)


def _message(address: str, key: str, answer: Response) -> Message | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerRefused(RequestCode.QUERY_MESSAGE, answer.code, answer.remark, address)
    # The index holds hashes: messages with other keys may be among the answers.
    for message in unwrap(decode_messages(answer.body)):
        if message.properties.get(names.UNIQ_KEY) == key:
            return message
    return None


def stored_prefix(count: int, is_stored: Callable[[int], bool]) -> int:
    """How many of `count` rows are stored; stored rows come before all others."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_stored(middle):
            low = middle + 1
        else:
            high = middle
    return low
