"""Statistics of topics, groups and queues, from a real store, against golden answers where there are any."""

from __future__ import annotations

from pathlib import Path

from tests.broker.asking import T0, Consumer, body_of, online, shape
from tests.broker.offline import Clock, ask, golden
from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.stats import stats_handlers
from twinlog.broker.stats.stats_handlers import java_date
from twinlog.wire.java_json.fastjson import loads


def test_topic_statistics_name_every_queue(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        put(ctx)
        answer = ask(stats_handlers.handlers(ctx), 202, {"topic": "T"})
        table = body_of(answer)["offsetTable"]
        assert len(table) == 4
        assert table[T0] == {"lastUpdateTimestamp": NOW, "maxOffset": 1, "minOffset": 0}
        assert shape(loads(answer.body)) == shape(loads(golden("wire-topic-stats-resp").body))
        answer = ask(stats_handlers.handlers(ctx), 202, {"topic": "X"})
        assert (answer.code, answer.remark) == (17, "topic[X] not exist")


def test_consume_statistics_show_how_far_a_group_is(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        for _ in range(3):
            put(ctx)
            clock.now_ms += 100
        ctx.offsets.commit("G", "T", 0, 2, NOW)
        answer = ask(stats_handlers.handlers(ctx), 208, {"consumerGroup": "G"})
        assert body_of(answer)["offsetTable"][T0] == {
            "brokerOffset": 3,
            "consumerOffset": 2,
            "lastTimestamp": NOW + 100,
            "pullOffset": 2,
        }
        assert shape(loads(answer.body)) == shape(loads(golden("wire-consume-stats-resp").body))
        assert body_of(ask(stats_handlers.handlers(ctx), 208, {"consumerGroup": "no"}))["offsetTable"] == {}


def test_topics_an_online_group_does_not_subscribe_to_are_left_out(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        ctx.offsets.commit("G", "T", 0, 0, NOW)
        online(ctx, Consumer(), topics=("Other",))
        assert body_of(ask(stats_handlers.handlers(ctx), 208, {"consumerGroup": "G"}))["offsetTable"] == {}


def test_the_whole_brokers_lag_is_summed_up(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        for _ in range(3):
            put(ctx)
        ctx.offsets.commit("G", "T", 0, 1, NOW)
        ctx.offsets.commit_pull("G", "T", 0, 2)
        body = body_of(ask(stats_handlers.handlers(ctx), 317, {"isOrder": "false"}))
        assert (body["brokerAddr"], body["totalDiff"], body["totalInflightDiff"]) == ("127.0.0.1:10911", 2, 1)
        assert list(body["consumeStatsList"][0]) == ["G"]
        assert body_of(ask(stats_handlers.handlers(ctx), 317, {"isOrder": "true"}))["consumeStatsList"] == []


def test_who_consumes_a_topic_and_what_a_group_consumes(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        online(ctx, Consumer(), group="LIVE")
        ctx.offsets.commit("G", "T", 0, 1, NOW)
        handlers = stats_handlers.handlers(ctx)
        assert body_of(ask(handlers, 300, {"topic": "T"})) == {"groupList": ["G", "LIVE"]}
        assert body_of(ask(handlers, 343, {"group": "G"})) == {"brokerAddr": "127.0.0.1:10911", "topicList": ["T"]}
        body = body_of(ask(handlers, 345, {"group": "LIVE", "topic": "T"}))
        assert body["subscriptionData"]["subString"] == "*"
        assert body_of(ask(handlers, 345, {"group": "G", "topic": "T"})) == {"group": "G", "topic": "T"}


def test_the_time_span_of_a_group(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        for _ in range(3):
            put(ctx)
            clock.now_ms += 1_000
        ctx.offsets.commit("G", "T", 0, 2, NOW)
        answer = ask(stats_handlers.handlers(ctx), 303, {"group": "G", "topic": "T"})
        span = body_of(answer)["consumeTimeSpanSet"][0]
        assert (span["minTimeStamp"], span["consumeTimeStamp"], span["maxTimeStamp"]) == (NOW, NOW + 1_000, NOW + 2_000)
        assert span["delayTime"] == 1_000
        assert span["maxTimeStampStr"] == java_date(NOW + 2_000)
        assert shape(loads(answer.body)) == shape(loads(golden("wire-consume-time-span-resp").body))


def test_units_of_a_queue_are_shown(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        first = put(ctx, TAGS="a")
        put(ctx, TAGS="b")
        fields = {"topic": "T", "queueId": "0", "index": "0", "count": "1"}
        body = body_of(ask(stats_handlers.handlers(ctx), 321, fields))
        assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 2)
        row = {"eval": False, "physicOffset": first.physical_offset, "physicSize": first.size, "tagsCode": ord("a")}
        assert body["queueData"] == [row]
        answer = ask(stats_handlers.handlers(ctx), 321, {**fields, "queueId": "9"})
        assert (answer.code, answer.remark) == (1, "9@T is not exist!")


def test_statistics_by_name(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        ctx.stats.puts("T").count += 6
        body = body_of(ask(stats_handlers.handlers(ctx), 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}))
        assert body["statsMinute"]["sum"] == 6
        answer = ask(stats_handlers.handlers(ctx), 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "X"})
        assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <X> not exist")


def test_correction_offsets_are_the_lowest_of_the_other_groups(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        for group, offset in (("A", 5), ("B", 3), ("C", 1)):
            ctx.offsets.commit(group, "T", 0, offset, NOW)
        fields = {"topic": "T", "compareGroup": "A", "filterGroups": "C"}
        answer = ask(stats_handlers.handlers(ctx), 308, fields)
        assert answer.body == b'{"correctionOffsets":{0:3}}'
