"""A peer that lies: a proxy before a real server, which spoils answers on their way back.

Answers are spoiled in their meaning as often as in their bytes: a field or a JSON value is replaced by one that some
code would not expect, the frame around it stays whole. While `Hostile.spoils` is false everything passes unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tools.fuzz.mutation import corpus, mutate

from twinlog.replication.transfer import HEAD_BYTES, TRANSFER_BYTES_MAX, decode_head, encode_head
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.errors import WireError
from twinlog.wire.frame import take_frame
from twinlog.wire.java_json.fastjson import dumps, loads

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 2**31 - 1, 2**31, -(2**63), 2**63, 10**30, 1.5, "", "x", "-1", "..:5", "a b:1", "[::1]:0"),
    *(
        [],
        {},
        [1, 2, 3],
        {"a": 1},
        [[]],
        [None],
        {"": None},
        "9" * 400,
        "x" * 5000,
        "\x00",
        "\ud7ff",
        "{",
        "2147483648",
    ),
)


class Hostile:
    """The will behind all proxies of a run: what to spoil, and by which dice."""

    def __init__(self, share: float = 0.7) -> None:
        self.spoils = False
        self.dice = random.Random(0)
        self._share = share
        self._frames = corpus("resp")
        self._writers: set[asyncio.StreamWriter] = set()
        self.rewritten: dict[bytes, bytes] = {}  # addresses of real servers, and of the proxies before them

    def begin(self, seed: int) -> None:
        self.spoils, self.dice = True, random.Random(seed)

    def end(self) -> None:
        """Be sane from now on; what was begun badly is closed."""
        self.spoils = False
        for writer in list(self._writers):
            writer.close()

    @contextlib.asynccontextmanager
    async def before(self, port: int, upstream_port: int, *, ha: bool = False) -> AsyncIterator[None]:
        """Listen on `port` for peers of the real server on `upstream_port`."""
        relay = self._relay_transfers if ha else self._relay_answers

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                theirs, ours = await asyncio.open_connection("127.0.0.1", upstream_port)
                self._writers.add(ours)
                await _both(_copy(reader, ours), relay(theirs, writer))
                ours.close()
                self._writers.discard(ours)
            except OSError:
                pass
            finally:
                writer.close()
                self._writers.discard(writer)

        async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
            try:
                yield
            finally:
                server.close()
                self.end()

    async def _relay_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray()
        while data := await reader.read(1 << 16):
            buffer += data
            while frame := take_frame(buffer):
                for sent in self._spoiled(decode_command(frame)):
                    if sent is None:
                        return
                    writer.write(sent)
            await writer.drain()

    async def _relay_transfers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The HA port's bytes. A record's own bytes stay as they are: RocketMQ has no checksum over most of them."""
        while True:
            try:
                head = decode_head(await reader.readexactly(HEAD_BYTES))
                data = await reader.readexactly(head.size)
            except asyncio.IncompleteReadError:
                return
            sane = encode_head(head.physical_offset, head.size) + data
            for sent in self._spoiled_transfer(sane, head.physical_offset):
                if sent is None:
                    return
                writer.write(sent)
            await writer.drain()

    def _spoiled_transfer(self, sane: bytes, offset: int) -> list[bytes | None]:
        dice = self.dice
        if not self.spoils or dice.random() > self._share / 2:
            return [sane]
        elsewhere = dice.choice((-1, -(2**63), 0, offset + 1, offset - 1, 2**62))
        choices: tuple[list[bytes | None], ...] = (
            [sane, sane],
            [],
            [sane[: dice.randrange(len(sane))], None],
            [dice.randbytes(dice.randrange(12, 60)), None],
            [encode_head(elsewhere, dice.choice((0, 7))), sane],
            [encode_head(offset, dice.choice((-1, -(2**31), 2**31 - 1, TRANSFER_BYTES_MAX + 1))), sane],
            [encode_head(offset, 0)] * 500 + [sane],
        )
        return dice.choice(choices)

    def _spoiled(self, answer: Command) -> list[bytes | None]:
        """The frames to send instead of `answer`; None closes the connection."""
        self._rewrite(answer)
        if not self.spoils or self.dice.random() > self._share:
            return [encode_command(answer)]
        dice = self.dice
        kinds: tuple[Callable[[Command], list[bytes | None]], ...] = (
            *(self._other_field, self._other_json, self._other_json, self._other_json, self._other_body),
            *(self._other_code, self._other_frame),
            lambda one: [mutate(encode_command(one), dice)],
            lambda one: [encode_command(one)] * 2,
            lambda one: dice.choice([[], [None], [dice.randbytes(50)]]),
        )
        return dice.choice(kinds)(answer)

    def _rewrite(self, answer: Command) -> None:
        for real, proxy in self.rewritten.items():
            if answer.body:
                answer.body = answer.body.replace(real, proxy)
            if answer.fields:
                old, new = real.decode(), proxy.decode()
                answer.fields = {name: value.replace(old, new) for name, value in answer.fields.items()}

    def _other_field(self, answer: Command) -> list[bytes | None]:
        fields = dict(answer.fields or {"masterAddr": ""})
        name = self.dice.choice(list(fields))
        value = self.dice.choice(VALUES)
        if value is None:
            del fields[name]
        else:
            fields[name] = str(value)
        answer.fields = fields
        return [encode_command(answer)]

    def _other_json(self, answer: Command) -> list[bytes | None]:
        try:
            answer.body = dumps(self._spoiled_value(loads(answer.body or b"{}")))
        except (WireError, TypeError, ValueError):
            return self._other_body(answer)
        return [encode_command(answer)]

    def _spoiled_value(self, value: Any) -> Any:
        """`value` with one value somewhere in it replaced, or one key."""
        if isinstance(value, Mapping) and value and self.dice.random() < 0.9:
            spoiled, name = dict(value), self.dice.choice(list(value))
            if self.dice.random() < 0.1:
                spoiled[str(self.dice.choice(VALUES))] = spoiled.pop(name)
            else:
                spoiled[name] = self._spoiled_value(value[name])
            return spoiled
        if isinstance(value, list) and value and self.dice.random() < 0.9:
            at = self.dice.randrange(len(value))
            return [*value[:at], self._spoiled_value(value[at]), *value[at + 1 :]]
        return self.dice.choice(VALUES)

    def _other_body(self, answer: Command) -> list[bytes | None]:
        match self.dice.randrange(4):
            case 0:
                answer.body = None
            case 1:
                answer.body = self.dice.choice(self._frames)
            case 2:
                answer.body = self.dice.choice((b"not JSON", b"[]", b"{}", b"null", b"[" * 5000, b"\xff\xfe", b"7"))
            case _:
                answer.body = mutate(answer.body or b"{}", self.dice)
        return [encode_command(answer)]

    def _other_code(self, answer: Command) -> list[bytes | None]:
        answer.code = self.dice.choice((0, 1, 2, 3, 14, 17, 24, -1, 32767, 999))
        return [encode_command(answer)]

    def _other_frame(self, answer: Command) -> list[bytes | None]:
        """What a real server once answered to another question."""
        buffer = bytearray(self.dice.choice(self._frames))
        other = decode_command(take_frame(buffer))  # type: ignore[arg-type]
        other.opaque = answer.opaque
        return [encode_command(other)]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _both(*ways: Any) -> None:
    """Run both ways of a connection; when one ends, so does the other."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
