"""Mutated and wrongly signed requests against a broker with accounts.

One account may send to one topic and read it. Besides what incoming.py asks for: whatever comes, the log holds nothing
but bodies that this account signed for its topic, and nothing else was made or moved.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.broker.contexts import open_context, wired
from tests.broker.running import SEND_FIELDS
from tools.fuzz.hostile import hostile
from tools.fuzz.incoming import all_handlers, feed, noting
from tools.fuzz.mutation import corpus, mutate, named_seed

from twinlog.broker.context import BrokerContext
from twinlog.broker.sends.send_fast import FastSend
from twinlog.client.signing import Credentials, sign
from twinlog.net.access import protected
from twinlog.net.connection import ConnectionOptions
from twinlog.security.gate import AccountGate
from twinlog.security.policies import Entry, Policy
from twinlog.security.users import SUPER, Account
from twinlog.settings.access import AccessSettings
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.errors import WireError
from twinlog.wire.frame import BINARY, JSON, take_frame

TOPIC, GROUP, FORBIDDEN = "Allowed", "readers", "Forbidden"
ENTRIES = (Entry(f"Topic:{TOPIC}", ("Pub", "Sub"), "Allow"), Entry(f"Group:{GROUP}", ("Sub",), "Allow"))
ALICE = Account("alice", "alice secret", policies=(Policy("Custom", ENTRIES),))
ROOT = Account("root", "root secret", SUPER)
SIGNERS = (
    Credentials("alice", "alice secret"),
    Credentials("alice", "wrong"),
    Credentials("root", "guessed"),
    Credentials("nobody", ""),
)


def send_frame(dice: random.Random, signed: set[bytes]) -> bytes:
    """A send, signed by somebody or nobody, as it is or changed behind the signature."""
    topic, body = dice.choice((TOPIC, TOPIC, FORBIDDEN)), b"body %d" % dice.getrandbits(64)
    properties = f"UNIQ_KEY\x01{dice.getrandbits(128):032X}\x02WAIT\x01true\x02" if dice.random() < 0.8 else ""
    code, fields = RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": topic, "i": properties}
    command = Command(code, opaque=dice.randrange(1000), fields=fields, body=body)
    signer = dice.choice((*SIGNERS, None))
    if signer is not None:
        sign(command, signer)
    if signer is SIGNERS[0] and topic == TOPIC:
        signed.add(body)
    if dice.random() < 0.3 and command.fields is not None:
        command.fields["b"] = dice.choice((FORBIDDEN, "%RETRY%other", "RMQ_SYS_TRANS_HALF_TOPIC"))
    if dice.random() < 0.2:
        command.body = b"changed " + body
    frame = encode_command(command, dice.choice((JSON, BINARY)))
    return mutate(frame, dice) if dice.random() < 0.4 else frame


def signed_again(frame: bytes, dice: random.Random) -> bytes:
    """A captured request with a signature of somebody, changed or not."""
    try:
        whole = take_frame(bytearray(frame))
        assert whole is not None
        command = decode_command(whole)
        sign(command, dice.choice(SIGNERS))
        frame = encode_command(command)
    except (WireError, ValueError):
        pass
    return mutate(frame, dice) if dice.random() < 0.5 else frame


async def play(ctx: BrokerContext, frames: list[bytes], step: int) -> None:
    surprises: list[str] = []
    assert ctx.gate is not None
    by_code = protected({code: noting(one, surprises) for code, one in all_handlers(ctx).items()}, ctx.gate)
    connection, transport = wired(ConnectionOptions(by_code, after_batch=ctx.publish_appends, fast=FastSend(ctx).take))
    await feed(connection, transport, frames, step)
    assert not surprises, surprises
    ctx.holds.drop(connection)
    ctx.clients.drop(connection)


def check_log(ctx: BrokerContext, signed: set[bytes]) -> int:
    at = count = 0
    while at < ctx.store.log_end:
        message = ctx.store.message_at(at)
        if message is None:  # the blank end of a segment
            at = (at // ctx.conf.store.segment_bytes + 1) * ctx.conf.store.segment_bytes
            continue
        assert message.topic == TOPIC, message
        assert bytes(message.body) in signed, message
        at += message.store_size
        count += 1
    return count


def fuzz(seeds: Iterable[int]) -> str:
    """What was played, for each of the seeds; raises SeedFailed."""
    frames, played, signed = corpus("req"), 0, set[bytes]()
    accounts = {one.username: one for one in (ALICE, ROOT)}
    access = AccessSettings(authentication=True, authorization=True)
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx, asyncio.Runner() as loop:
        ctx.gate = AccountGate(access, "DefaultCluster", lambda: accounts, lambda: 0)
        codes = list(all_handlers(ctx))
        before = set(ctx.topics.rows), set(ctx.groups.rows)
        for seed in seeds:
            dice = random.Random(seed)
            chosen = [send_frame(dice, signed) for _ in range(dice.randrange(1, 6))]
            chosen += [signed_again(dice.choice(frames), dice) for _ in range(dice.randrange(1, 6))]
            chosen += [hostile(codes, dice) for _ in range(dice.choice((0, 1)))]
            dice.shuffle(chosen)
            with named_seed(seed):
                loop.run(play(ctx, chosen, dice.choice((13, 500, 1 << 20))))
                check_log(ctx, signed)
            played += len(chosen)
        stored = check_log(ctx, signed)
        assert stored, "nothing that was signed was stored: this target proves nothing"
        assert set(ctx.topics.rows) - before[0] <= {TOPIC}
        assert set(ctx.groups.rows) - before[1] <= {GROUP}
        assert all(key == f"{TOPIC}@{GROUP}" for key in ctx.offsets.rows), ctx.offsets.rows
        return f"{played} frames, {stored} records, all of them signed for"
