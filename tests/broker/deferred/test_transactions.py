"""Transactions on a real store: commit, roll back, and ask about what stays open, as Java's queues want it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.offline import Clock, Wire, ask, golden
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.base.system_names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from twinlog.broker.clients.client_table import Client
from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred.services import DeferredServices
from twinlog.net.connection import Request
from twinlog.security.gate import AccountGate
from twinlog.security.policies import Entry, Policy
from twinlog.security.users import Account
from twinlog.settings.access import AccessSettings
from twinlog.store.log.append import Appended, Draft
from twinlog.wire.message import decode_message
from twinlog.wire.properties import encode_properties

GROUP = "CID_RMQ_SYS_TRANS"


class Producer(Wire):
    """A producer's connection that keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__("producer")
        self.asked: list[tuple[int, dict[str, str], bytes]] = []

    def oneway(self, code, fields=None, body=None):
        self.asked.append((code, fields or {}, body or b""))


def prepare(ctx: BrokerContext, body: bytes = b"pay", **pairs: str) -> Appended:
    """Store a half message as the send path does."""
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": f"K{ctx.store.log_end}", **pairs}
    draft = Draft("T", 1, body, encode_properties(pairs), ("127.0.0.1", 4711), ctx.wall_ms(), sys_flag=4)
    ctx.prepare(draft, pairs)
    draft.properties = encode_properties(pairs)
    ctx.redirect(draft, pairs)
    appended = ctx.store.append(draft)
    ctx.store.dispatch_pending()
    return appended


def end(services: DeferredServices, of: Appended, decision: int, **fields: str):
    values = {
        "producerGroup": "PG",
        "tranStateTableOffset": str(of.queue_offset),
        "commitLogOffset": str(of.physical_offset),
        "commitOrRollback": str(decision),
    }
    answer = ask(services.handlers(), 37, {**values, **fields})
    services._ctx.publish_appends()  # as a connection does after its requests
    return answer


def test_a_half_message_is_seen_by_nobody_until_it_is_committed(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        services = DeferredServices(ctx)
        stored = prepare(ctx, TAGS="TagX")
        assert bodies(ctx, queue_id=1) == []
        assert messages(ctx, HALF_TOPIC)[0].sys_flag == 0
        assert end(services, stored, 8).code == 0
        (message,) = messages(ctx, queue_id=1)
        assert (message.body, message.sys_flag, message.prepared_transaction_offset) == (
            b"pay",
            8,
            stored.physical_offset,
        )
        for name in ("TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "__transactionId__"):
            assert name in message.properties


def test_a_rolled_back_message_never_appears_and_an_op_record_names_it(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        services = DeferredServices(ctx)
        first, second = prepare(ctx), prepare(ctx)
        assert end(services, first, 12).code == 0
        assert end(services, second, 8).code == 0
        assert bodies(ctx, queue_id=1) == [b"pay"]
        services.transactions.queues.flush_all_ops()
        (op,) = messages(ctx, OP_TOPIC)
        assert (op.body, op.tags) == (b"0,1,", "d")


def test_a_second_commit_of_the_same_message_stores_nothing(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        services = DeferredServices(ctx)
        stored = prepare(ctx)
        assert end(services, stored, 8).code == end(services, stored, 8).code == 0
        assert end(services, stored, 12).code == 0
        assert bodies(ctx, queue_id=1) == [b"pay"]


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commitLogOffset": "99999999"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "x"}, "Find prepared transaction message failed"),
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": "7"}, "The transaction state table offset wrong"),
    ],
)
def test_an_end_that_names_the_wrong_message_is_refused_in_javas_words(tmp_path: Path, fields, remark):
    with stored_context(tmp_path) as ctx:
        services = DeferredServices(ctx)
        answer = end(services, prepare(ctx), 8, **fields)
        assert (answer.code, answer.remark) == (1, remark)


def test_an_ordinary_message_cannot_be_ended(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        answer = end(DeferredServices(ctx), put(ctx, PGROUP="PG"), 8)
        assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")


def test_unknown_is_not_answered_and_a_replica_refuses(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handler = DeferredServices(ctx).handlers()[37]
        assert handler(Request(37, 1, fields={"commitOrRollback": "0"})) is None
    with stored_context(tmp_path, brokerRole="SLAVE", brokerId=1) as ctx:
        answer = ask(DeferredServices(ctx).handlers(), 37, {"commitOrRollback": "8"})
        assert (answer.code, answer.remark) == (11, "not set any response code")


def test_a_producer_that_limited_itself_may_not_end_unasked_after_that(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        stored = prepare(ctx, CHECK_IMMUNITY_TIME_IN_SECONDS="5")
        clock.now_ms += 5_001
        assert end(services, stored, 8).code == 604
        assert end(services, stored, 8, fromTransactionCheck="true").code == 0


def test_a_committed_message_may_still_be_delayed(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        assert end(services, prepare(ctx, DELAY="1"), 8).code == 0
        assert bodies(ctx, queue_id=1) == []
        clock.now_ms += 1_000
        services.delays.deliver_due(clock())
        (message,) = messages(ctx, queue_id=1)
        assert message.sys_flag == 8


async def test_a_half_message_is_shown_to_no_account_that_may_not_send_to_its_topic(tmp_path: Path):
    """Anybody can join a producer group by a heartbeat. Seen to fail: whoever was in it was asked."""
    clock, owner, others = Clock(NOW), Producer(), Producer()
    owner.peer = others.peer = ("10.0.0.1", 1)
    policies = (Policy("Custom", (Entry("Topic:T", ("Pub",), "Allow"),)),)
    accounts = {
        "owner": Account("owner", "s", policies=policies),
        "spy": Account("spy", "s"),
        "off": Account("off", "s", "Super", "disable"),
    }
    with stored_context(tmp_path, clock) as ctx:
        settings = AccessSettings(authentication=True, authorization=True)
        ctx.gate = AccountGate(settings, "C", lambda: accounts, lambda: 0)
        services = DeferredServices(ctx)
        for name in ("spy", "off", None):
            ctx.clients.register_producer(Client(others, f"{name}", account=name), "PG", clock())
            prepare(ctx, b"private")
            clock.now_ms += 6_000
            await check(services)
        assert others.asked == []
        ctx.clients.register_producer(Client(owner, "p@1", account="owner"), "PG", clock())
        clock.now_ms += 60_000
        await check(services)
        assert owner.asked and others.asked == []


async def test_an_open_half_message_is_written_again_and_its_producer_asked(tmp_path: Path):
    clock, producer = Clock(NOW), Producer()
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        prepare(ctx, b"open", UNIQ_KEY="KEY")
        clock.now_ms += 5_999
        await check(services)
        assert producer.asked == []
        clock.now_ms += 1
        await check(services)
        ((code, fields, body),) = producer.asked
        again = messages(ctx, HALF_TOPIC)[1]
        assert code == 39
        assert fields == {
            "topic": HALF_TOPIC,
            "tranStateTableOffset": "1",
            "commitLogOffset": str(again.physical_offset),
            "msgId": "KEY",
            "transactionId": "KEY",
            "offsetMsgId": again.offset_message_id,
            "bname": "broker-a",
        }
        assert set(fields) == set(golden("wire-check-transaction-req").fields or {})
        shown = decode_message(body)
        assert (shown.topic, shown.queue_id, shown.body, shown.queue_offset) == ("T", 1, b"open", 1)
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert ctx.offsets.get(GROUP, HALF_TOPIC, 0) == 1
        answer = ask(
            services.handlers(),
            37,
            {
                "producerGroup": "PG",
                "tranStateTableOffset": fields["tranStateTableOffset"],
                "commitLogOffset": fields["commitLogOffset"],
                "commitOrRollback": "8",
                "fromTransactionCheck": "true",
            },
        )
        assert answer.code == 0
        ctx.publish_appends()
        assert bodies(ctx, queue_id=1) == [b"open"]
        clock.now_ms += 60_000
        await check(services)
        assert len(producer.asked) == 1
        assert ctx.offsets.get(GROUP, HALF_TOPIC, 0) == 2
        assert ctx.offsets.get(GROUP, OP_TOPIC, 0) == 1


async def test_an_answer_that_names_the_first_copy_ends_the_second_too(tmp_path: Path):
    clock, producer = Clock(NOW), Producer()
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        first = prepare(ctx)
        clock.now_ms += 10_000
        await check(services)
        assert end(services, first, 8).code == 0
        clock.now_ms += 60_000
        await check(services)
        assert len(producer.asked) == 1
        assert bodies(ctx, queue_id=1) == [b"pay"]


async def test_after_fifteen_checks_a_message_is_put_aside_and_can_be_resumed(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        prepare(ctx, b"forgotten", UNIQ_KEY="KEY")
        for _ in range(16):
            clock.now_ms += 30_000
            await check(services)
        assert bodies(ctx, CHECK_MAX_TOPIC) == [b"forgotten"]
        prepared = ctx.store.max_offset(HALF_TOPIC, 0)
        clock.now_ms += 30_000
        await check(services)
        assert ctx.store.max_offset(HALF_TOPIC, 0) == prepared
        given_up = messages(ctx, CHECK_MAX_TOPIC)[0]
        assert ask(services.handlers(), 323, {"msgId": given_up.offset_message_id}).code == 0
        assert ctx.store.max_offset(HALF_TOPIC, 0) == prepared + 1
        assert messages(ctx, HALF_TOPIC)[-1].properties["TRANSACTION_CHECK_TIMES"] == "0"
        assert ask(services.handlers(), 323, {"msgId": "nonsense"}).code == 1


async def test_a_restart_knows_what_op_records_name(tmp_path: Path):
    clock, producer = Clock(NOW), Producer()
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        done = prepare(ctx, b"done")
        prepare(ctx, b"open")
        end(services, done, 12)
        services.transactions.queues.flush_all_ops()
    clock.now_ms += 10_000
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        await check(services)
        assert [decode_message(body).body for _, _, body in producer.asked] == [b"open"]


async def test_a_half_message_with_a_longer_immunity_is_kept_and_not_asked_about(tmp_path: Path):
    clock, producer = Clock(NOW), Producer()
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        ctx.clients.register_producer(Client(producer, "p@1"), "PG", clock())
        prepare(ctx, b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        clock.now_ms += 30_000
        await check(services)
        assert producer.asked == []
        assert messages(ctx, HALF_TOPIC)[1].properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        clock.now_ms += 31_000
        await check(services)
        assert len(producer.asked) == 1


async def check(services: DeferredServices) -> None:
    """One round; the store is flushed on the way, as nobody else does it here."""
    store = services.transactions.queues._ctx.store
    original = store.dispatch_pending

    def dispatch_and_flush() -> int:
        count = original()
        store.flush()
        return count

    store.dispatch_pending = dispatch_and_flush
    try:
        await services.transactions.check()
    finally:
        store.dispatch_pending = original
