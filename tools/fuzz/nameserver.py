"""Mutated, hostile and greedy requests against a name server's handlers.

After every frame the process must be alive, each request answered at most once, routes must still be given out, and
at the end what is kept is within its limits.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.broker.contexts import wired
from tools.fuzz.greedy import greedy_for_name_server
from tools.fuzz.hostile import hostile
from tools.fuzz.incoming import feed, noting
from tools.fuzz.mutation import corpus, mutate, named_seed

from twinlog.nameserver.broker_handlers import remove_brokers
from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.handlers import handlers
from twinlog.nameserver.kv_config import KvConfig, table_length
from twinlog.net.connection import ConnectionOptions
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, encode_command

WRITES_SETTINGS = {RequestCode.UPDATE_NAMESRV_CONFIG}


async def play(ctx: NameServerContext, frames: list[bytes], step: int) -> None:
    surprises: list[str] = []
    by_code = {code: noting(one, surprises) for code, one in handlers(ctx).items() if code not in WRITES_SETTINGS}
    connection, transport = wired(ConnectionOptions(by_code))
    await feed(connection, transport, frames, step)
    assert not surprises, surprises
    remove_brokers(ctx, ctx.table.registered_over(connection), "the test is over")
    asker, transport = wired(ConnectionOptions(by_code))
    asker.data_received(encode_command(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 7)))
    assert [answer.code for answer in transport.take_answers()] == [0]


def check_kept(ctx: NameServerContext) -> None:
    """Nothing is kept beyond the limits."""
    settings = ctx.settings
    assert table_length(ctx.kv._table) <= settings.kv_table_length_max
    for brokers in ctx.table.topics.values():
        for queues in brokers.values():
            assert 0 <= queues.read_queue_nums <= settings.topic_queues_max, queues
            assert 0 <= queues.write_queue_nums <= settings.topic_queues_max, queues


def fuzz(seeds: Iterable[int]) -> str:
    """What was played, for each of the seeds; raises SeedFailed."""
    frames, played = corpus("req"), 0
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as loop:
        conf = load_nameserver_conf(text="", overrides={"kvConfigPath": str(Path(folder) / "kv.json")})
        kv = KvConfig(conf.nameserver.kv_path)
        ctx = NameServerContext(conf, kv, lambda: 1_700_000_000_000, lambda notice: None)
        codes = [code for code in handlers(ctx) if code not in WRITES_SETTINGS]
        for seed in seeds:
            dice = random.Random(seed)
            chosen = [mutate(dice.choice(frames), dice) for _ in range(dice.randrange(4))]
            chosen += [hostile(codes, dice) for _ in range(dice.randrange(1, 3))]
            chosen += [greedy_for_name_server(dice) for _ in range(dice.choice((0, 1)))]
            with named_seed(seed):
                loop.run(play(ctx, chosen, dice.choice((13, 500, 1 << 18, 1 << 20))))
            played += len(chosen)
        check_kept(ctx)
        return f"{played} frames, {len(ctx.table.topics)} topics with a route"
