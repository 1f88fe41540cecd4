"""Messages sent back: another try later, a dead letter at the end, and Java's words for what cannot be sent back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.broker.offline import Clock, Wire, ask
from tests.broker.stored import NOW, bodies, messages, put, stored_context

from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.sends import send_back
from twinlog.broker.sends.copy_budget import BURST_S


def sent_back(ctx, appended, wire=None, **fields: str):
    values = {"offset": str(appended.physical_offset), "group": "G", "delayLevel": "0"}
    return ask(send_back.handlers(ctx), 36, {**values, **fields}, wire=wire)


def test_a_message_comes_again_after_ten_seconds_and_remembers_where_it_was(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        first = put(ctx, b"x", TAGS="TagA")
        answer = sent_back(ctx, first)
        assert (answer.code, answer.fields, answer.body) == (0, None, None)
        clock.now_ms += 10_000
        services.delays.deliver_due(clock())
        (again,) = messages(ctx, "%RETRY%G")
        origin = messages(ctx)[0].offset_message_id
        assert again.reconsume_times == 1
        assert again.properties.pop("__CRC32#") != messages(ctx)[0].properties["__CRC32#"]
        assert again.properties == {
            "TAGS": "TagA",
            "RETRY_TOPIC": "T",
            "WAIT": "false",
            "DELAY": "3",
            "ORIGIN_MESSAGE_ID": origin,
            "REAL_TOPIC": "%RETRY%G",
            "REAL_QID": "0",
        }
        assert ctx.topics.get("%RETRY%G").read_queue_nums == 1
        assert ctx.stats.view("SNDBCK_PUT_NUMS", "T@G", clock()).day.sum == 1


def test_each_try_waits_longer_and_keeps_the_first_id(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        put(ctx, b"x")
        origin = messages(ctx)[0].offset_message_id
        sent_back(ctx, messages(ctx)[0])
        clock.now_ms += 10_000
        services.delays.deliver_due(clock())
        sent_back(ctx, messages(ctx, "%RETRY%G")[0])
        parked = messages(ctx, "SCHEDULE_TOPIC_XXXX", 3)[0]
        assert parked.properties["DELAY"] == "4"
        assert parked.properties["ORIGIN_MESSAGE_ID"] == origin
        assert parked.properties["RETRY_TOPIC"] == "T"


@pytest.mark.parametrize("fields", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
def test_the_last_try_or_the_consumers_wish_makes_a_dead_letter(tmp_path: Path, fields):
    with stored_context(tmp_path) as ctx:
        DeferredServices(ctx)
        assert sent_back(ctx, put(ctx, b"dead"), **fields).code == 0
        assert bodies(ctx, "%DLQ%G") == [b"dead"]
        assert ctx.topics.get("%DLQ%G").perm == 6


def test_what_cannot_be_sent_back_is_refused_in_javas_words(tmp_path: Path):
    with stored_context(tmp_path, autoCreateSubscriptionGroup=False) as ctx:
        stored = put(ctx)
        answer = sent_back(ctx, stored, group="unknown")
        assert answer.code == 26
        assert answer.remark.startswith("subscription group not exist, unknown ")
        for offset in ("7777", "-4", "1"):
            answer = sent_back(ctx, stored, offset=offset)
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
        group = ctx.groups.get("G")
        ctx.groups.put("G", msgspec.structs.replace(group, retry_queue_nums=0), 0)
        end = ctx.store.log_end
        assert sent_back(ctx, stored).code == 0
        assert ctx.store.log_end == end


def test_a_broker_without_write_permission_and_a_replica_refuse(tmp_path: Path):
    with stored_context(tmp_path, brokerPermission=4) as ctx:
        assert sent_back(ctx, put(ctx)).code == 16
    with stored_context(tmp_path, brokerRole="SLAVE", brokerId=1) as ctx:
        assert ask(send_back.handlers(ctx), 36, {"group": "G"}).code == 2


def test_sixty_requests_do_not_copy_one_large_message_sixty_times(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock, maxSendBackBytesPerSecond=1_000_000) as ctx:
        DeferredServices(ctx)
        first = put(ctx, b"x" * 1_000_000)
        begin = ctx.store.log_end
        codes = [sent_back(ctx, first).code for _ in range(60)]
        assert codes == [0] * BURST_S + [2] * (60 - BURST_S)  # a few at once, the rest is refused
        assert ctx.store.log_end - begin < (BURST_S + 1) * 1_100_000
        assert sent_back(ctx, first).remark == (
            "another message that group G sends back for client: maxSendBackBytesPerSecond is 1000000; "
            "try again in a moment"
        )
        assert ctx.limits.refused == {"maxSendBackBytesPerSecond": 61 - BURST_S}
        assert sent_back(ctx, first, wire=Wire("other")).code == 0  # another host has its own account
        clock.now_ms += 1_000
        assert [sent_back(ctx, first).code for _ in range(2)] == [0, 2]


def test_small_messages_are_sent_back_as_fast_as_a_consumer_fails(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        DeferredServices(ctx)
        first = put(ctx, b"x" * 1_000)
        assert {sent_back(ctx, first).code for _ in range(3_000)} == {0}
