"""Messages by key and by physical offset, as Java 5.5.0 and 4.9.7 answered the same requests."""

import inspect
import json

import pytest
from tests.broker.offline import ask, asked
from tests.broker.stored import put, stored_context

from twinlog.broker.pulls import query_handlers
from twinlog.broker.stats import stats_handlers
from twinlog.settings.updates import plan_broker_update
from twinlog.wire.command import Command
from twinlog.wire.message import decode_messages

FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
STORED = 100


@pytest.fixture
def ctx(tmp_path):
    with stored_context(tmp_path) as ctx:
        for number in range(STORED):
            put(ctx, b"%d" % number, KEYS="K", UNIQ_KEY="U")
        yield ctx


def found(ctx, key: str, count_max: int, **marks: str) -> list[int]:
    fields = {"topic": "T", "key": key, "maxNum": str(count_max), **FOREVER, **marks}
    answer = ask(query_handlers.handlers(ctx), 12, fields)
    assert answer.code == 0, answer.remark
    return [message.queue_offset for message in decode_messages(answer.body)]


def newest(count: int) -> list[int]:
    return list(range(STORED - count, STORED))


def update(ctx, text: str) -> None:
    ctx.replace_conf(plan_broker_update(ctx.conf, text).settings)


@pytest.mark.parametrize(("asked", "given"), [(500, 64), (65, 64), (64, 64), (32, 32), (1, 1)])
def test_a_query_gives_the_newest_64_at_most_in_the_order_of_the_log(ctx, asked, given):
    assert found(ctx, "K", asked) == newest(given)
    assert found(ctx, "U", asked, _UNIQUE_KEY_QUERY="false") == newest(given)


@pytest.mark.parametrize("asked", [-1, 0, 1, 500])
def test_a_query_by_unique_key_gives_32_whatever_it_asks_for(ctx, asked):
    assert found(ctx, "U", asked, _UNIQUE_KEY_QUERY="true") == newest(32)


def test_both_limits_change_while_the_broker_runs_and_the_lower_one_counts(ctx):
    update(ctx, "maxMsgsNumBatch=10\n")
    assert found(ctx, "K", 500) == newest(10)
    assert found(ctx, "U", 500, _UNIQUE_KEY_QUERY="true") == newest(10)
    update(ctx, "maxMsgsNumBatch=90\ndefaultQueryMaxNum=80\n")
    assert found(ctx, "K", 500) == newest(90)
    assert found(ctx, "U", 1, _UNIQUE_KEY_QUERY="true") == newest(80)


@pytest.mark.parametrize(("key", "asked"), [("K", 0), ("K", -1), ("nobody", 64)])
def test_a_query_that_finds_nothing_is_answered_in_javas_words(ctx, key, asked):
    fields = {"topic": "T", "key": key, "maxNum": str(asked), **FOREVER}
    answer = ask(query_handlers.handlers(ctx), 12, fields)
    assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")


def test_only_a_key_that_is_there_needs_a_thread(ctx):
    query = query_handlers.handlers(ctx)[12]
    absent, present = (query(asked(12, {"topic": "T", "key": key, "maxNum": "64", **FOREVER})) for key in ("no", "K"))
    assert isinstance(absent, Command) and absent.code == 22
    fields = ask(query_handlers.handlers(ctx), 12, {"topic": "T", "key": "K", "maxNum": "64", **FOREVER}).fields
    assert absent.fields == fields  # how far the index reaches
    assert inspect.isawaitable(present)
    present.close()


def test_the_bytes_of_an_answer_have_a_bound_and_the_newest_messages_are_in_it(ctx):
    fields = {"topic": "T", "key": "K", "maxNum": "64", **FOREVER}
    whole = ask(query_handlers.handlers(ctx), 12, fields)
    size = len(whole.body) // 64
    update(ctx, f"maxQueryBytes={3 * size + size // 2}\n")
    answer = ask(query_handlers.handlers(ctx), 12, fields)
    assert [message.queue_offset for message in decode_messages(answer.body)] == newest(3)
    assert answer.remark.startswith("older messages with this key are left out: maxQueryBytes is ")
    assert ctx.limits.refused == {"maxQueryBytes": 1}
    update(ctx, "maxQueryBytes=1\n")
    assert found(ctx, "K", 64) == newest(1)  # at least one, however long it is


def test_the_entries_of_a_queue_in_an_answer_have_a_bound(ctx):
    handlers = stats_handlers.handlers(ctx)

    def entries(index: int, count: int) -> int:
        fields = {"topic": "T", "queueId": "0", "index": str(index), "count": str(count)}
        return len(json.loads(ask(handlers, 321, fields).body)["queueData"])

    assert entries(0, 1000) == STORED
    update(ctx, "maxQueueEntriesPerQuery=7\n")
    assert entries(0, 7) == 7 and entries(STORED - 2, 1000) == 2
    assert ctx.limits.refused == {}
    assert entries(0, 1000) == 7
    assert ctx.limits.refused == {"maxQueueEntriesPerQuery": 1}
