"""Request and reply: the answer goes to the connection that waits for it."""

from __future__ import annotations

from pathlib import Path

from tests.broker.offline import Wire, ask
from tests.broker.running import SEND_FIELDS
from tests.broker.stored import bodies, stored_context

from twinlog.broker.clients.client_table import Client
from twinlog.broker.sends import reply
from twinlog.net.errors import RequestTimeout
from twinlog.wire.command import Command
from twinlog.wire.properties import decode_properties

TOPIC = "DefaultCluster_REPLY_TOPIC"


class Requester(Wire):
    """A connection that answers what the broker asks."""

    def __init__(self, answer: Command | Exception) -> None:
        super().__init__("requester")
        self.peer = ("127.0.0.1", 9)
        self.answer = answer
        self.asked: list[tuple[int, dict[str, str], bytes]] = []

    async def request(self, code, fields=None, body=None, timeout_ms=3000):
        self.asked.append((code, fields, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def send_reply(ctx, wire: Wire, properties: str = "REPLY_TO_CLIENT\x01r@1\x02CORRELATION_ID\x017\x02"):
    return ask(reply.handlers(ctx), 325, {**SEND_FIELDS, "b": TOPIC, "i": properties}, b"42", wire)


def test_a_reply_reaches_its_requester_and_is_stored(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        requester = Requester(Command(0))
        ctx.clients.register_producer(Client(requester, "r@1"), "PG", 0)
        answer = send_reply(ctx, requester)
        assert answer.code == 0
        assert answer.fields["queueOffset"] == "0" and len(answer.fields["msgId"]) == 32
        ((code, fields, body),) = requester.asked
        assert (code, body, fields["topic"]) == (326, b"42", TOPIC)
        assert decode_properties(fields["properties"])["CORRELATION_ID"] == "7"
        assert "PUSH_REPLY_TIME" in fields["properties"]
        assert bodies(ctx, TOPIC) == [b"42"]


def test_a_reply_is_not_stored_when_the_operator_does_not_want_it(tmp_path: Path):
    with stored_context(tmp_path, storeReplyMessageEnable=False) as ctx:
        requester = Requester(Command(0))
        ctx.clients.register_producer(Client(requester, "r@1"), "PG", 0)
        answer = send_reply(ctx, requester)
        assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")
        assert bodies(ctx, TOPIC) == []


def test_a_reply_to_a_client_that_left_is_answered_with_an_error(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        wire = Requester(Command(0))
        answer = send_reply(ctx, wire)
        assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <r@1> not found.")
        assert answer.fields["MSG_REGION"] == "DefaultRegion"
        silent = Requester(RequestTimeout("r", 326, 10_000))
        ctx.clients.register_producer(Client(silent, "r@1"), "PG", 0)
        assert send_reply(ctx, wire).code == 1
        assert send_reply(ctx, wire, "A\x01b\x02").remark == "reply message properties[REPLY_TO_CLIENT] is null"
