"""Mutated frames against a broker's handlers, for as long as you like.

    python tools/fuzz.py --seconds 60 [--seed 1]

The corpus is what real RocketMQ software sent (tests/vectors). After every frame the process must be alive, each
request answered at most once, and at the end every record in the log whole. A failure prints its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.broker.contexts import open_context, wired  # noqa: E402

from twinlog.broker import (  # noqa: E402  # noqa: E402
    client_handlers,
    group_handlers,
    lock_handlers,
    offset_handlers,
    pull,
    query_handlers,
    send,
    send_back,
    topic_handlers,
)
from twinlog.broker.context import BrokerContext  # noqa: E402
from twinlog.broker.send_fast import FastSend  # noqa: E402
from twinlog.net.connection import ConnectionOptions  # noqa: E402

MODULES = (
    send,
    send_back,
    pull,
    query_handlers,
    client_handlers,
    offset_handlers,
    lock_handlers,
    topic_handlers,
    group_handlers,
)
INTERESTING = (b"\x00", b"\xff", b"\x01", b"\x02", b'"', b"{", b"}", b"\\u0001", b"-1", b"9999999999999", b"../", b"%")


def corpus() -> list[bytes]:
    """The captured requests."""
    paths = sorted((ROOT / "tests" / "vectors").glob("wire-*-req.hex"))
    return [bytes.fromhex("".join(path.read_text().split())) for path in paths]


def mutate(frame: bytes, dice: random.Random) -> bytes:
    """A frame with a few bytes changed, cut, doubled or moved; half the time with a length that fits again."""
    data = bytearray(frame)
    for _ in range(dice.choice((0, 1, 1, 2, 4, 8))):
        at = dice.randrange(len(data)) if data else 0
        match dice.randrange(5):
            case 0 if data:
                data[at] = dice.randrange(256)
            case 1:
                data[at:at] = dice.choice(INTERESTING)
            case 2:
                del data[at : at + dice.randrange(1, 9)]
            case 3:
                data[at : at + 4] = dice.choice(INTERESTING) * 2
            case _:
                data[at:at] = data[at : at + dice.randrange(1, 40)]
    if len(data) >= 8 and dice.random() < 0.5:
        data[:4] = (len(data) - 4).to_bytes(4, "big")
        data[4] &= 1
        header = min(int.from_bytes(data[5:8], "big"), len(data) - 8)
        data[5:8] = header.to_bytes(3, "big")
    return bytes(data)


async def play(ctx: BrokerContext, frames: list[bytes], step: int) -> None:
    """Give the frames to one connection in pieces of `step` bytes."""
    handlers = {code: handler for module in MODULES for code, handler in module.handlers(ctx).items()}
    connection, transport = wired(ConnectionOptions(handlers, after_batch=ctx.settle, fast=FastSend(ctx).take))
    data = b"".join(frames)
    for at in range(0, len(data), step):
        if transport.closed:
            break
        connection.data_received(data[at : at + step])
    await asyncio.sleep(0)
    answers = [answer for answer in transport.take_answers() if answer.is_response]
    assert len(answers) <= len(data) // 8, "more answers than there can be requests"
    ctx.holds.drop(connection)
    ctx.clients.drop(connection)


def check_log(ctx: BrokerContext) -> int:
    """Every record of the log is whole; returns how many there are."""
    at = count = 0
    while at < ctx.store.log_end:
        message = ctx.store.message_at(at)
        if message is None:  # the blank end of a segment
            at = (at // ctx.conf.store.segment_bytes + 1) * ctx.conf.store.segment_bytes
            continue
        at += message.store_size
        count += 1
    return count


def fuzz(seconds: float, seed: int) -> tuple[int, int]:
    """(frames played, records stored) within `seconds`."""
    frames, played, deadline = corpus(), 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        while time.monotonic() < deadline:
            seed += 1
            dice = random.Random(seed)
            chosen = [mutate(dice.choice(frames), dice) for _ in range(dice.randrange(1, 8))]
            try:
                asyncio.run(play(ctx, chosen, dice.choice((1, 13, 500, 1 << 20))))
            except BaseException:
                print(f"failed with seed {seed}: python tools/fuzz.py --seed {seed - 1}", file=sys.stderr)
                raise
            played += len(chosen)
        return played, check_log(ctx)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutated frames against a broker's handlers.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    played, records = fuzz(options.seconds, options.seed)
    print(f"{played} frames, {records} whole records in the log, nothing broke")


if __name__ == "__main__":
    main()
