"""A hostile peer as a process of its own: `python -m tests.faults.attack HOST:PORT KIND COUNT SEED RATE`.

KIND `ha` opens COUNT connections to the HA port and writes garbage: random bytes, numbers that could be reports of a
replica, the begin of a report. KIND `mirror` is a false replica, which reports everything that it is sent, for COUNT
seconds. KIND `frames` sends COUNT mutated and hostile requests to a remoting port. RATE limits them per second.
KIND `greedy` writes to a remoting port, over eight connections and for COUNT seconds, as many small requests as it
takes; half of them are unknown there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import sys
import time

from tools.fuzz.hostile import hostile
from tools.fuzz.mutation import corpus, mutate

from twinlog.base.addresses import parse_address
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, encode_command

# What an administrator may do is not an attack: these would change or stop the server on purpose.
_CHANGES = {
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
}
_AT_ONCE = 8


async def attack(address: str, kind: str, count: int, seed: int, rate: float) -> None:
    target = parse_address(address)
    began, done, dice = time.monotonic(), 0, random.Random(seed)
    if kind == "mirror":
        return await mirror(target.host, target.port, count)
    if kind == "greedy":
        answered = await asyncio.gather(*(greedy(target.host, target.port, count) for _ in range(_AT_ONCE)))
        return print(f"{sum(answered)} bytes of answers in {count} s")
    streams = ha_streams(dice, count) if kind == "ha" else frame_streams(dice, count)
    for group in iter(lambda: [each for _, each in zip(range(_AT_ONCE), streams, strict=False)], []):
        await asyncio.gather(*(play(target.host, target.port, data) for data, _ in group))
        done += sum(size for _, size in group)
        if (ahead := done / rate - (time.monotonic() - began)) > 0:
            await asyncio.sleep(ahead)
    print(f"{done} in {time.monotonic() - began:.0f} s")


async def play(host: str, port: int, data: bytes) -> None:
    """Write, wait for a moment for an answer or the end, and go."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(data)
                async with asyncio.timeout(0.02):
                    await reader.read(1 << 16)
            finally:
                writer.transport.abort()


async def greedy(host: str, port: int, seconds: float) -> int:
    """How many bytes of answers came. A name server knows the first request, a broker the second."""
    route = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, fields={"topic": "Faults"})
    end = Command(RequestCode.GET_MAX_OFFSET, 2, fields={"topic": "Faults", "queueId": "0"})
    chunk, answered = (encode_command(route) + encode_command(end)) * 1000, 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(host, port)
                    try:
                        while data := await _ask_and_read(reader, writer, chunk):
                            answered += len(data)
                    finally:
                        writer.transport.abort()
                await asyncio.sleep(0.1)
    return answered


async def _ask_and_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chunk: bytes) -> bytes:
    if writer.transport.get_write_buffer_size() < len(chunk):
        writer.write(chunk)
    return await reader.read(1 << 20)


async def mirror(host: str, port: int, seconds: float) -> None:
    """A replica that nobody knows, with an empty log, which claims to have stored every transfer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(OSError, EOFError):
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(struct.pack(">q", 0))
                    while True:
                        offset, size = struct.unpack(">qi", await reader.readexactly(12))
                        await reader.readexactly(size)
                        writer.write(struct.pack(">q", offset + size))
                await asyncio.sleep(0.1)


def ha_streams(dice: random.Random, count: int):
    for _ in range(count):
        match dice.randrange(5):
            case 0:
                yield dice.randbytes(dice.randrange(1, 400)), 1
            case 1:  # reports, from a replica that nobody knows
                yield b"".join(struct.pack(">q", dice.choice((0, 1, 100, 1 << 20, 1 << 40))) for _ in range(9)), 1
            case 2:  # a replica with an empty log that then claims to have everything
                yield struct.pack(">q", 0) + struct.pack(">q", dice.randrange(1 << 24)) * 3, 1
            case 3:
                yield struct.pack(">q", -dice.randrange(1 << 62)), 1
            case _:
                yield bytes(dice.randrange(8)), 1


def frame_streams(dice: random.Random, count: int):
    frames, codes = corpus("req"), [int(code) for code in RequestCode if code not in _CHANGES]
    left = count
    while left > 0:
        chosen = [mutate(dice.choice(frames), dice) for _ in range(min(left, dice.randrange(1, 30)))]
        if dice.random() < 0.05:
            chosen[-1] = hostile(codes, dice)
        left -= len(chosen)
        yield b"".join(chosen), len(chosen)


if __name__ == "__main__":
    address, kind, count, seed, rate = sys.argv[1:]
    asyncio.run(attack(address, kind, int(count), int(seed), float(rate)))
