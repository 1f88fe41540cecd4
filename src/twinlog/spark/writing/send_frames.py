"""Send requests as frames.

What it trades: `send_command` is the definition. The frames of a queue's batches differ in two numbers and the rows, so
`BatchFrames` keeps the text around these numbers, and does not copy the rows. A property test holds both equal.
"""

from __future__ import annotations

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.send_queue import SendRequest
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, encode_header
from twinlog.wire.fields import encode_fields
from twinlog.wire.frame import encode_prefix
from twinlog.wire.headers import SendHeaderV2

LANGUAGE = "PYTHON"
# Numbers that stand in a template for those of a request; no real number has so many digits.
_OPAQUE, _BORN = 1_000_000_000_000_000_003, 1_000_000_000_000_000_007


def send_command(options: WriteOptions, queue: MessageQueue, request: SendRequest) -> Command:
    """The request as a command, with a copy of its rows."""
    rows, begin = request.rows, request.begin
    if request.is_batch:
        # The wrapper has no unique key: a 5.3.3 broker would write it over those of the messages.
        body, properties, flag = bytes(rows.batch_body(begin, request.end)), "", 0
        code = RequestCode.SEND_BATCH_MESSAGE
    else:
        body, properties = rows.bodies[begin].as_py(), rows.properties[begin].as_py().decode()
        code, flag = RequestCode.SEND_MESSAGE_V2, int(rows.flags[begin])
    header = _header(options, queue, int(rows.sys_flags[begin]), wall_clock_ms(), flag, properties, request.is_batch)
    return Command(code, fields=encode_fields(header), body=body)


class BatchFrames:
    """Makes the frames of batches, in two parts: the bytes before the rows, and the rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._heads: dict[tuple[MessageQueue, int], bytes | None] = {}  # one or two for each queue of the task

    def frame(self, queue: MessageQueue, request: SendRequest, opaque: int) -> tuple[bytes, memoryview] | None:
        """The frame of a batch; None if it has to be sent as a command."""
        rows, begin = request.rows, request.begin
        kind = queue, int(rows.sys_flags[begin])
        if kind not in self._heads:
            self._heads[kind] = self._head(*kind)
        head = self._heads[kind]
        if head is None:
            return None
        body = rows.batch_body(begin, request.end)
        header = head % {b"opaque": opaque, b"born": wall_clock_ms()}
        return encode_prefix(len(header), len(body)) + header, body

    def _head(self, queue: MessageQueue, sys_flag: int) -> bytes | None:
        """The header with places for two numbers; None if a name holds one of the stand-ins."""
        fields = encode_fields(_header(self._options, queue, sys_flag, _BORN, 0, "", True))
        command = Command(RequestCode.SEND_BATCH_MESSAGE, _OPAQUE, language=LANGUAGE, fields=fields)
        text = encode_header(command).replace(b"%", b"%%")
        for mark, name in ((b"%d" % _OPAQUE, b"opaque"), (b"%d" % _BORN, b"born")):
            if text.count(mark) != 1:
                return None
            text = text.replace(mark, b"%(" + name + b")d")
        return text


def _header(
    options: WriteOptions, queue: MessageQueue, sys_flag: int, born_ms: int, flag: int, properties: str, is_batch: bool
) -> SendHeaderV2:
    return SendHeaderV2(
        producer_group=options.group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=is_batch,
        broker_name=queue.broker_name,
    )
