"""Signed sends as accounts of a test make them, and what a broker does with them on either path."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

from tests.broker.contexts import open_context, wired
from tests.broker.running import SEND_FIELDS
from tests.broker.sends.spellings import LONG_NAMES

from twinlog.broker.sends import send
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.access import protected
from twinlog.net.connection import ConnectionOptions
from twinlog.security.gate import AccountGate
from twinlog.security.policies import Entry, Policy
from twinlog.security.signatures import signature
from twinlog.security.users import Account
from twinlog.settings.access import AccessSettings
from twinlog.wire.command import Command, encode_command

ALLOWED = (
    Policy("Custom", (Entry("Topic:T", ("Pub",), "Allow"), Entry("Topic:T2", ("Pub",), "Allow", ("10.0.0.1",)))),
)
ACCOUNTS = {
    "root": Account("root", "r" * 100, "Super"),
    "alice": Account("alice", "alice secret", policies=ALLOWED),
    "off": Account("off", "secret", "Super", "disable"),
}
SIGNERS = ["root", "alice", "alice", "alice", "alice wrongly", "off", "nobody", "", "alice cut", "alice moved"]


def signed(signer: str, style: str, command: Command, *, first: bool = False) -> Command:
    """`command` as one of the SIGNERS signs it; `first`: names that begin with a capital come first, as from Go."""
    name, _, how = signer.partition(" ")
    if not name:
        return command
    fields = {**(command.fields or {}), "AccessKey": name}
    names = send_names(style, fields)
    secret = ACCOUNTS[name].secret if name in ACCOUNTS and how != "wrongly" else "wrong"
    made = signature({names[key]: value for key, value in fields.items()}, command.body, secret)
    made = {"cut": made[:-1], "moved": made[1:] + made[:1]}.get(how, made)
    fields = {"AccessKey": name, "Signature": made, **fields} if first else {**fields, "Signature": made}
    return Command(command.code, command.opaque, command.flag, fields=fields, body=command.body)


def send_names(style: str, fields: dict[str, str]) -> dict[str, str]:
    return {key: LONG_NAMES.get(key, key) if "long" in style else key for key in fields}


def ordinary(number: int, signer: str = "alice", topic: str = "T") -> bytes:
    """The frame of a send as a Java producer writes it."""
    fields = {**SEND_FIELDS, "b": topic, "i": f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01a\x02"}
    return encode_command(signed(signer, "java", Command(310, 10 + number, fields=fields, body=b"x" * 30)))


class Peer:
    def __init__(self, host: str = "127.0.0.1") -> None:
        self.peer = (host, 5555)


def gate_of(ctx, accounts=ACCOUNTS, edition=(0,)):
    access = AccessSettings(authentication=True, authorization=True)
    ctx.gate = AccountGate(access, "DefaultCluster", lambda: accounts, lambda: edition[0])


def play(frames: list[bytes], step: int | None, *, fast: bool) -> tuple[list, list]:
    """The answers and records of frames that come in chunks of `step` bytes; None: each frame in a chunk of its own."""
    return asyncio.run(_play(frames, step, fast))


async def _play(frames: list[bytes], step: int | None, fast: bool) -> tuple[list, list]:
    random.seed(1)  # queue -1 lets the broker choose
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        for topic in ("T", "T2"):
            ensure_topic(ctx, topic, 4)
        gate_of(ctx)
        assert ctx.gate is not None
        handlers = protected(send.handlers(ctx), ctx.gate)
        fast_path = FastSend(ctx).take if fast else None
        connection, transport = wired(ConnectionOptions(handlers, after_batch=ctx.publish_appends, fast=fast_path))
        data = b"".join(frames)
        for chunk in frames if step is None else [data[at : at + step] for at in range(0, len(data), step)]:
            if not transport.closed:
                connection.data_received(chunk)
        records, at = [], 0
        while (record := ctx.store.record_at(at)) is not None and at < ctx.store.log_end:
            records.append(bytes(record))
            at += len(record)
        return [bytes(transport.data), transport.closed], records
