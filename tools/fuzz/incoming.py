"""Mutated, hostile and greedy requests against a broker's handlers.

After every frame the process must be alive, each request answered at most once, and at the end every record in the
log whole and every table within its limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import tempfile
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.broker.contexts import Written, open_context, wired
from tools.fuzz.greedy import greedy_for_broker
from tools.fuzz.hostile import hostile
from tools.fuzz.mutation import corpus, mutate, named_seed

from twinlog.broker.admin import group_handlers, operation_handlers, reset_handlers, topic_handlers
from twinlog.broker.clients import client_handlers, connection_handlers, lock_handlers, offset_handlers
from twinlog.broker.context import BrokerContext
from twinlog.broker.pulls import pull, query_handlers
from twinlog.broker.replication import metadata_handlers
from twinlog.broker.sends import reply, send, send_back
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.stats import stats_handlers
from twinlog.net.connection import Answer, Connection, ConnectionOptions, Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.wire.errors import WireError

MODULES = (
    send,
    send_back,
    pull,
    query_handlers,
    client_handlers,
    stats_handlers,
    reset_handlers,
    reply,
    operation_handlers,
    metadata_handlers,
    connection_handlers,
    offset_handlers,
    lock_handlers,
    topic_handlers,
    group_handlers,
)

LIMITS = {"maxAutoCreatedTopics": 200, "maxAutoCreatedGroups": 200}  # low enough to be reached


async def play(ctx: BrokerContext, frames: list[bytes], step: int) -> None:
    """Give the frames to one connection in pieces of `step` bytes."""
    surprises: list[str] = []
    handlers = {code: noting(handler, surprises) for code, handler in all_handlers(ctx).items()}
    connection, transport = wired(ConnectionOptions(handlers, after_batch=ctx.publish_appends, fast=FastSend(ctx).take))
    await feed(connection, transport, frames, step)
    assert not surprises, surprises
    ctx.holds.drop(connection)
    ctx.clients.drop(connection)


def all_handlers(ctx: BrokerContext) -> dict[int, Handler]:
    return {code: handler for module in MODULES for code, handler in module.handlers(ctx).items()}


async def feed(connection: Connection, transport: Written, frames: list[bytes], step: int) -> None:
    """Play the frames; what is left unfinished must be what was sent, and there are not more answers than requests."""
    data = b"".join(frames)
    step = max(step, len(data) // 10_000)  # a large frame byte by byte takes minutes
    for at in range(0, len(data), step):
        if transport.closed:
            break
        connection.data_received(data[at : at + step])
    async with asyncio.timeout(10):
        await asyncio.gather(*connection._tasks, return_exceptions=True)
    answers = [answer for answer in transport.take_answers() if answer.is_response]
    assert len(answers) <= len(data) // 8, "more answers than there can be requests"
    assert connection._inbound.bytes <= len(data)
    connection.connection_lost(None)
    assert connection._inbound.bytes == 0


def noting(handler: Handler, surprises: list[str]) -> Handler:
    """`handler`, whose unexpected errors (which would be logged with a traceback) are noted in `surprises`."""

    def answer(request: Request) -> Any:
        with note(request):
            result = handler(request)
            return later(request, result) if inspect.isawaitable(result) else result

    async def later(request: Request, result: Awaitable[Answer]) -> Answer:
        with note(request):
            return await result

    @contextlib.contextmanager
    def note(request: Request) -> Iterator[None]:
        try:
            yield
        except (RequestRefused, WireError, OSError):
            raise
        except Exception as error:
            surprises.append(f"code {request.code}: {error!r}")
            raise

    return answer


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


def check_kept(ctx: BrokerContext) -> None:
    """Nothing is kept beyond the limits."""
    settings = ctx.settings
    assert len(ctx.auto_topics) <= settings.auto_topics_max
    assert len(ctx.auto_groups) <= settings.auto_groups_max
    for config in ctx.topics.rows.values():
        assert 0 <= config.read_queue_nums <= settings.topic_queues_max, config
        assert 0 <= config.write_queue_nums <= settings.topic_queues_max, config
    for key, row in ctx.offsets.rows.items():
        assert all(ctx.has_queue(key.partition("@")[0], queue_id) for queue_id in row), (key, row)


def fuzz(seeds: Iterable[int]) -> str:
    """What was played, for each of the seeds; raises SeedFailed."""
    frames, played = corpus("req"), 0
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder), **LIMITS) as ctx, asyncio.Runner() as loop:
        codes = list(all_handlers(ctx))
        for seed in seeds:
            dice = random.Random(seed)
            chosen = [mutate(dice.choice(frames), dice) for _ in range(dice.randrange(1, 8))]
            chosen += [hostile(codes, dice) for _ in range(dice.choice((0, 0, 1, 2)))]
            chosen += [greedy_for_broker(dice) for _ in range(dice.choice((0, 1)))]
            with named_seed(seed):
                loop.run(play(ctx, chosen, dice.choice((1, 13, 500, 1 << 20))))
            played += len(chosen)
        check_kept(ctx)
        return f"{played} frames, {check_log(ctx)} whole records in the log"
