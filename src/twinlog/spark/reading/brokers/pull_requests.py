"""The pull requests of one range of a queue, encoded fast: all but three numbers of a frame stay the same."""

from __future__ import annotations

from collections.abc import Callable

from twinlog.client.consuming.pulling import pull_header, subscription_of
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, encode_header
from twinlog.wire.fields import encode_fields
from twinlog.wire.frame import encode_prefix

# Numbers that stand in the template for those of a request.
_OPAQUE, _OFFSET, _COUNT = 1_900_000_001, 9_000_000_000_000_000_001, 1_900_000_002


def pull_command(options: ReadOptions, wanted: QueueRange, offset: int, count: int) -> Command:
    subscription = subscription_of(wanted.queue.topic, options.expression, options.expression_type)
    header = pull_header(
        options.pull_group, wanted.queue, offset, subscription, count_max=count, send_subscription=True, large=True
    )
    return Command(RequestCode.PULL_MESSAGE, fields=encode_fields(header))


def pull_frame_maker(options: ReadOptions, wanted: QueueRange) -> Callable[[int, int, int], bytes]:
    """A function that makes the frame of a pull from its opaque, offset and count."""
    command = pull_command(options, wanted, _OFFSET, _COUNT)
    command.opaque, command.language = _OPAQUE, "PYTHON"
    text = encode_header(command).replace(b"%", b"%%")
    for mark, name in ((_OPAQUE, b"opaque"), (_OFFSET, b"offset"), (_COUNT, b"count")):
        text = text.replace(b"%d" % mark, b"%(" + name + b")d", 1)

    def make(opaque: int, offset: int, count: int) -> bytes:
        header = text % {b"opaque": opaque, b"offset": offset, b"count": count}
        return encode_prefix(len(header), 0) + header

    return make
