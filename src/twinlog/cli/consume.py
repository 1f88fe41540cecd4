"""`twinlog consume`: messages as lines on standard output, until Ctrl-C.

With --group it is a member of that group: it shares the queues and commits what was printed. Without --group it reads
all queues alone and commits nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence

from twinlog.cli.shared.connecting import (
    Parser,
    add_connection_options,
    argparse_app,
    client_options,
    connection_of,
    run_client,
)
from twinlog.cli.shared.explain import did_you_mean
from twinlog.cli.shared.option_values import moment_ms, natural
from twinlog.client import (
    SQL92,
    TAG,
    Admin,
    BrokerRefused,
    ClientError,
    ConsumerOptions,
    Message,
    MessageQueue,
    NoRoute,
    PullConsumer,
    PushConsumer,
    StartFrom,
)
from twinlog.client.admin.messages import TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of
from twinlog.observe.messages.message_text import message_data
from twinlog.telemetry.log import setup_logging
from twinlog.wire.codes import ResponseCode

_EXAMPLES = """examples:
  twinlog consume -t Orders
  twinlog consume -t Orders -g order-readers --tags 'paid || sent' --json
  twinlog consume -t Orders --from last --max 10
"""
IDLE_POLL_MS = 1_000


_FINAL_REFUSALS = (ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


class NoReadableQueue(NoRoute):
    """A topic that exists, and that nobody may read."""

    def __init__(self, topic: str) -> None:
        change = f"twinlog admin updateTopicPerm -t {topic} -c <cluster> -p 6"
        ClientError.__init__(self, f"topic {topic!r} has no queue that may be read; change it with `{change}`")
        self.topic = topic


def run(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    setup_logging(args.log_level)
    printer = Printer(args.max, args.json)
    return run_client("consume", consume(args, printer), connection_of(args))


consume_app = argparse_app("consume", "Print messages as lines.", run, lambda: parser())


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="twinlog consume", description="Print messages as lines, until Ctrl-C.", epilog=_EXAMPLES)
    made.add_argument("-t", "--topic", required=True, help="topic")
    made.add_argument("-g", "--group", help="join this consumer group, and commit what was printed")
    made.add_argument("--from", dest="start", default="first", type=start_of, help="first (default), last, or a time")
    made.add_argument("--max", type=natural, default=0, metavar="N", help="end after N messages")
    made.add_argument("--idle", type=float, default=0, metavar="SECONDS", help="end when no message came for this long")
    choice = made.add_mutually_exclusive_group()
    choice.add_argument("--tags", default="*", help="only these tags, such as 'a || b'")
    choice.add_argument("--sql", help="only messages that match this SQL92 expression")
    made.add_argument("--json", action="store_true", help="whole messages as JSON, one per line")
    add_connection_options(made)
    return made


def start_of(text: str) -> str | int:
    if text in ("first", "last"):
        return text
    try:
        return moment_ms(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of first, last, milliseconds, yyyy-MM-dd#HH:mm:ss:SSS"
        ) from None


class Printer:
    """Prints messages until there are enough, or until the reader of the pipe has closed it."""

    def __init__(self, count_max: int, as_json: bool) -> None:
        self._left = count_max or -1
        self._as_json = as_json
        self.done = asyncio.Event()
        self._printed = asyncio.Event()  # something was printed
        self.error: BaseException | None = None

    def print(self, message: Message) -> bool:
        """Whether `message` was printed."""
        if self._left == 0 or self.done.is_set():
            return False
        try:
            line = json.dumps(message_data(message), ensure_ascii=False).encode() if self._as_json else message.body
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            self.error = error
            self.done.set()
            return False
        self._left -= 1
        self._printed.set()
        if self._left == 0:
            self.done.set()
        return True

    async def wait(self, idle_seconds: float) -> None:
        """Return when enough is printed or nothing came for `idle_seconds`; raises an error of the output."""
        while not self.done.is_set():
            try:
                async with asyncio.timeout(idle_seconds or None):
                    await self._wait_for_change()
            except TimeoutError:
                break
        if self.error is not None:
            raise self.error

    async def _wait_for_change(self) -> None:
        self._printed.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in (self.done, self._printed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


async def consume(args: argparse.Namespace, printer: Printer) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(number, printer.done.set)
    await (_as_member(args, printer) if args.group else _alone(args, printer))


async def _as_member(args: argparse.Namespace, printer: Printer) -> None:
    await _check_member(args)

    async def listen(message: Message) -> None:
        if not printer.print(message):
            await asyncio.Event().wait()  # not printed, so not to be committed: closing cancels this

    start = {"first": StartFrom.FIRST, "last": StartFrom.LAST}.get(args.start, StartFrom.TIME)
    time_ms = args.start if isinstance(args.start, int) else None
    settings = ConsumerOptions(start_from=start, start_time_ms=time_ms, concurrency=1, close_ms_max=100)
    consumer = PushConsumer(
        args.namesrvAddr, args.group, listen, options=client_options(args), consumer_options=settings
    )
    consumer.subscribe(args.topic, args.sql or args.tags, SQL92 if args.sql else TAG)
    async with consumer:
        await printer.wait(args.idle)


async def _alone(args: argparse.Namespace, printer: Printer) -> None:
    options = client_options(args)
    async with PullConsumer(args.namesrvAddr, TOOLS_GROUP, options=options, register=False) as consumer:
        consumer.select(args.topic, args.sql or args.tags, SQL92 if args.sql else TAG)
        positions = {}
        for queue in await _readable(consumer, args.topic):
            if args.start == "first":
                positions[queue] = await consumer.min_offset(queue)
            elif args.start == "last":
                positions[queue] = await consumer.max_offset(queue)
            else:
                positions[queue] = await consumer.offset_at(queue, args.start)
        consumer.assign(positions)
        polling = asyncio.create_task(_poll(consumer, printer))
        waiting = asyncio.create_task(printer.wait(args.idle))
        try:
            await asyncio.wait([polling, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            polling.cancel()
            results = await asyncio.gather(polling, waiting, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


async def _readable(consumer: PullConsumer, topic: str) -> Sequence[MessageQueue]:
    queues = await consumer.queues(topic)
    if not queues:
        raise NoReadableQueue(topic)
    return queues


async def _check_member(args: argparse.Namespace) -> None:
    """Try a pull as the group: an account or a topic that forbids it would else be waited for without a word."""
    async with Admin(args.namesrvAddr, options=client_options(args)) as admin:
        try:
            queues = (await admin.session.route(args.topic)).readable
        except NoRoute:
            nearest = did_you_mean(args.topic, await admin.topics())
            print(f"topic {args.topic!r} does not exist yet; waiting for it{nearest}", file=sys.stderr)
            return
        if not queues:
            raise NoReadableQueue(args.topic)
        subscription = subscription_of(args.topic, args.sql or args.tags, SQL92 if args.sql else TAG)
        for queue in {queue.broker_name: queue for queue in queues}.values():
            try:
                end = await admin.queue_calls.max_offset(queue)
                await admin.queue_calls.pull(args.group, queue, end, subscription)
            except BrokerRefused as refused:
                if refused.code in _FINAL_REFUSALS:
                    raise


async def _poll(consumer: PullConsumer, printer: Printer) -> None:
    try:
        while not printer.done.is_set():
            for message in await consumer.poll(IDLE_POLL_MS):
                printer.print(message)
    finally:
        printer.done.set()
