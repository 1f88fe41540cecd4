"""Mutated requests against a broker's handlers.

After every frame the process must be alive, each request answered at most once, and at the end every record in the
log whole.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.broker.contexts import open_context, wired
from tools.fuzz.mutation import corpus, mutate, named_seed

from twinlog.broker import (
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
from twinlog.broker.context import BrokerContext
from twinlog.broker.send_fast import FastSend
from twinlog.net.connection import ConnectionOptions

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


def fuzz(seeds: Iterable[int]) -> str:
    """What was played, for each of the seeds; raises SeedFailed."""
    frames, played = corpus("req"), 0
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        for seed in seeds:
            dice = random.Random(seed)
            chosen = [mutate(dice.choice(frames), dice) for _ in range(dice.randrange(1, 8))]
            with named_seed(seed):
                asyncio.run(play(ctx, chosen, dice.choice((1, 13, 500, 1 << 20))))
            played += len(chosen)
        return f"{played} frames, {check_log(ctx)} whole records in the log"
