"""`twinlog send`: every line of standard input becomes a message."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from twinlog.cli.shared.connecting import (
    EXPECTED_FAILURES,
    Parser,
    add_connection_options,
    argparse_app,
    client_options,
    connection_of,
    explained,
)
from twinlog.cli.shared.option_values import positive_seconds
from twinlog.client import BadArgument, Outgoing, Producer
from twinlog.observe.messages.message_text import parse_message
from twinlog.telemetry.log import setup_logging

_EXAMPLES = """examples:
  echo hello | twinlog send -t Orders
  twinlog send -t Orders --key-from json:id --tags paid < orders.jsonl
  twinlog consume -t Orders --idle 5 --json | twinlog send --json -t Copy
"""
CHUNK_BYTES = 1 << 16
LINE_BYTES_MAX = 32 * 1024 * 1024  # JSON writes a body of 4 MB, which brokers take, with up to six characters per byte


def run(arguments: Sequence[str]) -> int:
    args = read_arguments(arguments)
    setup_logging(args.log_level)
    counts = Counts()
    try:
        asyncio.run(send_lines(args, counts))
    except KeyboardInterrupt:
        pass
    except EXPECTED_FAILURES as error:
        counts.print_summary()
        print(f"twinlog send: {explained(error, connection_of(args))}", file=sys.stderr)
        return 1
    counts.print_summary()
    return 0


send_app = argparse_app("send", "Send lines of standard input as messages.", run, lambda: parser())


@dataclass(slots=True)
class Counts:
    """How many messages were sent, and since when."""

    sent: int = 0
    skipped: int = 0
    started: float = field(default_factory=time.monotonic)

    def print_summary(self) -> None:
        seconds = max(time.monotonic() - self.started, 1e-9)
        what = "1 message" if self.sent == 1 else f"{self.sent} messages"
        text = f"sent {what} in {seconds:.2f} s, {self.sent / seconds:.0f}/s"
        skipped = f", skipped {self.skipped} empty lines" if self.skipped else ""
        print(text + skipped, file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="twinlog send", description="Every line of standard input becomes a message.", epilog=_EXAMPLES)
    made.add_argument("-t", "--topic", help="topic; needed unless --json lines name theirs")
    made.add_argument("--json", action="store_true", help="lines are messages as `twinlog consume --json` prints them")
    made.add_argument("--tags", default="", help="tag of all messages")
    made.add_argument("--keys", default="", help="keys of all messages, with spaces between them")
    source = "word:N (N-th word), json:NAME (member of a JSON object), or regex:PATTERN (its first group)"
    made.add_argument("--key-from", metavar="HOW", type=reader_of, help=f"key of each message: {source}")
    made.add_argument(
        "--sharding-from", metavar="HOW", type=reader_of, help="lines with the same key stay in order, in one queue"
    )
    made.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")
    made.add_argument("--delay-level", type=int, default=0, help="1 to 18")
    made.add_argument("-g", "--group", default="TWINLOG_SEND", help="producer group (default %(default)s)")
    made.add_argument("--in-flight", type=int, default=64, help="sends at the same time; 1 keeps the order of lines")
    made.add_argument(
        "--timeout",
        type=positive_seconds,
        default=10,
        metavar="SECONDS",
        help="give up a message after this time, in which another broker may become master (default %(default)s)",
    )
    add_connection_options(made)
    return made


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; an error for those that contradict each other."""
    made = parser()
    args = made.parse_args(arguments)
    if not args.topic and not args.json:
        made.error("the topic is missing: give it with -t")
    taken = [name for name in ("tags", "keys", "key_from", "sharding_from", "property") if getattr(args, name)]
    if args.json and taken:
        made.error(f"--{taken[0].replace('_', '-')} does not go with --json, whose lines have their own")
    return args


async def send_lines(args: argparse.Namespace, counts: Counts) -> None:
    properties = dict(_pair(text) for text in args.property)
    in_flight = 1 if args.sharding_from else max(1, args.in_flight)
    room = asyncio.Semaphore(in_flight)
    async with Producer(args.namesrvAddr, args.group, options=client_options(args)) as producer:
        queue = None
        if in_flight == 1 and not args.sharding_from and args.topic:
            queue = (await producer.queues(args.topic))[0]  # one queue, so that the lines stay in order

        async def send(line: bytes) -> None:
            try:
                await producer.send(
                    message_of(line, args, properties), queue=queue, timeout_ms=int(args.timeout * 1000)
                )
                counts.sent += 1
            finally:
                room.release()

        try:
            async with asyncio.TaskGroup() as tasks:
                async for line in lines_of(sys.stdin.buffer):
                    if not line:
                        counts.skipped += 1
                        continue
                    await room.acquire()
                    tasks.create_task(send(line))
        except* EXPECTED_FAILURES as group:
            raise group.exceptions[0] from None


def message_of(line: bytes, args: argparse.Namespace, properties: dict[str, str]) -> Outgoing:
    """The message that a line becomes."""
    if args.json:
        message = parse_message(line, args.topic)
        message.delay_level = args.delay_level
        return message
    text = line.decode("utf-8", "replace")
    return Outgoing(
        args.topic,
        line,
        tags=args.tags,
        keys=(args.key_from(text) if args.key_from else args.keys).split(),
        properties=dict(properties),
        sharding_key=args.sharding_from(text) if args.sharding_from else "",
        delay_level=args.delay_level,
    )


async def lines_of(stream) -> AsyncIterator[bytes]:
    """The lines of a blocking stream without their ends, as they arrive."""
    loop = asyncio.get_running_loop()
    begun: list[bytes] = []  # of a line whose end has not come
    while chunk := await loop.run_in_executor(None, stream.read1, CHUNK_BYTES):
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun = []
        for line in whole:
            yield line.removesuffix(b"\r")
        begun.append(rest)
        if sum(map(len, begun)) > LINE_BYTES_MAX:
            raise BadArgument(f"a line has more than {LINE_BYTES_MAX} bytes, too many for a message; split it")
    if rest := b"".join(begun):
        yield rest


def reader_of(how: str) -> Callable[[str], str]:
    """A function that takes the key out of a line, by `word:N`, `json:NAME` or `regex:PATTERN`."""
    kind, _, detail = how.partition(":")
    if kind == "word" and detail.isdigit() and int(detail) > 0:
        return lambda line: _nth(line.split(), int(detail) - 1, line, how)
    if kind == "json" and detail:
        return lambda line: _member(line, detail)
    if kind == "regex" and detail:
        try:
            pattern = re.compile(detail)
        except re.error as error:
            raise argparse.ArgumentTypeError(f"{detail!r} is not a regular expression: {error}") from None
        return lambda line: _matched(pattern, line)
    raise argparse.ArgumentTypeError(f"{how!r} is not one of word:N, json:NAME, regex:PATTERN")


def _nth(words: list[str], at: int, line: str, how: str) -> str:
    if at >= len(words):
        raise BadArgument(f"line {line[:80]!r} has {len(words)} words, {how} needs {at + 1}")
    return words[at]


def _member(line: str, name: str) -> str:
    try:
        return str(json.loads(line)[name])
    except (ValueError, KeyError, TypeError):
        raise BadArgument(f"line {line[:80]!r} is not a JSON object with a member {name!r}") from None


def _matched(pattern: re.Pattern[str], line: str) -> str:
    found = pattern.search(line)
    if found is None:
        raise BadArgument(f"line {line[:80]!r} does not match {pattern.pattern!r}")
    return found[1] if pattern.groups else found[0]


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadArgument(f"property {text!r} is not NAME=VALUE")
    return name, value
