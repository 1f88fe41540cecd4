"""What mqadmin asks of a broker, answered from a real store, against golden answers where there are any."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tests.broker.offline import Clock, Wire, ask, golden
from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.admin import config_handlers, operation_handlers, reset_handlers
from twinlog.broker.clients import connection_handlers
from twinlog.broker.clients.client_table import Client
from twinlog.broker.context import BrokerContext
from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.stats import runtime_info, stats_handlers
from twinlog.broker.stats.stats_handlers import java_date
from twinlog.net.errors import RequestTimeout
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.wire.bodies import ConsumerData, SubscriptionData
from twinlog.wire.command import Command
from twinlog.wire.java_json.fastjson import loads

T0 = (("brokerName", "broker-a"), ("queueId", 0), ("topic", "T"))


class Consumer(Wire):
    """A consumer's connection that answers the broker."""

    def __init__(self, answer: Command | Exception | None = None) -> None:
        super().__init__("10.0.0.7")
        self.answer = answer
        self.asked: list[tuple[int, dict[str, str], bytes | None]] = []

    async def request(self, code, fields=None, body=None, timeout_ms=3000):
        self.asked.append((code, fields, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def online(
    ctx: BrokerContext, wire: Wire, group: str = "G", version: int = 479, topics: tuple[str, ...] = ("T",)
) -> None:
    subscriptions = [SubscriptionData(topic=topic, sub_version=100) for topic in topics]
    data = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    ctx.clients.register_consumer(Client(wire, "c@1", "JAVA", version), data, ctx.clock_ms())


def body_of(answer: Command) -> dict:
    assert answer.code == 0, answer.remark
    return loads(answer.body)


def shape(value):
    """The names in a JSON value, without what differs from run to run."""
    if isinstance(value, dict):
        objects = [key for key in value if not isinstance(key, str) or key.startswith("{")]
        if objects:
            return {"object": shape(value[objects[0]])}
        return {key: shape(member) for key, member in sorted(value.items())}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


# -- topics, groups, queues ------------------------------------------------------------------------------


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


# -- connections ---------------------------------------------------------------------------------------


def test_connections_of_groups(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = connection_handlers.handlers(ctx)
        online(ctx, Consumer())
        ctx.clients.register_producer(Client(Wire("10.0.0.9"), "p@1", "GO", 317), "PG", NOW)
        answer = ask(handlers, 203, {"consumerGroup": "G"})
        assert shape(loads(answer.body)) == shape(
            json.loads(golden("wire-consumer-connection-resp").body.replace(b'"T1"', b'"T"'))
        )
        assert body_of(answer)["connectionSet"][0]["clientAddr"] == "10.0.0.7:1"
        assert body_of(ask(handlers, 204, {"producerGroup": "PG"}))["connectionSet"][0]["language"] == "GO"
        assert body_of(ask(handlers, 328))["data"]["PG"][0]["remoteIP"] == "/10.0.0.9:1"
        answer = ask(handlers, 203, {"consumerGroup": "X"})
        assert (answer.code, answer.remark) == (206, "the consumer group[X] not online")
        answer = ask(handlers, 204, {"producerGroup": "X"})
        assert (answer.code, answer.remark) == (1, "the producer group[X] not exist")


def test_a_question_is_passed_on_to_the_consumer_and_its_answer_back(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        consumer = Consumer(Command(0, remark="fine", body=b"{}"))
        online(ctx, consumer)
        fields = {"consumerGroup": "G", "clientId": "c@1", "jstackEnable": "false"}
        answer = ask(connection_handlers.handlers(ctx), 307, fields)
        assert (answer.code, answer.remark, answer.body) == (0, "fine", b"{}")
        assert consumer.asked == [(307, fields, None)]
        answer = ask(connection_handlers.handlers(ctx), 307, {**fields, "clientId": "other"})
        assert (answer.code, answer.remark) == (1, "The Consumer <G> <other> not online")
        consumer.answer = RequestTimeout("c", 307, 10_000)
        assert ask(connection_handlers.handlers(ctx), 307, fields).code == 207


def test_an_old_consumer_is_not_asked(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        online(ctx, Consumer(), version=61)
        answer = ask(connection_handlers.handlers(ctx), 307, {"consumerGroup": "G", "clientId": "c@1"})
        assert answer.code == 1
        assert answer.remark.endswith("too low to finish, please upgrade it to V3_1_8_SNAPSHOT")


def test_a_consumer_is_given_a_message_to_consume(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        consumer = Consumer(Command(0))
        online(ctx, consumer)
        put(ctx, b"again")
        record = ctx.store.record_at(0)
        message = ctx.store.message_at(0)
        fields = {"consumerGroup": "G", "clientId": "c@1", "msgId": message.offset_message_id, "topic": "T"}
        assert ask(connection_handlers.handlers(ctx), 309, fields).code == 0
        ((code, sent, body),) = consumer.asked
        assert (code, body) == (309, bytes(record))
        assert (sent["brokerName"], sent["topicSysFlag"], sent["groupSysFlag"]) == ("broker-a", "0", "0")
        assert ask(connection_handlers.handlers(ctx), 309, {**fields, "msgId": "zz"}).code == 1


def test_consumers_say_which_queues_they_hold(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        held = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'
        online(ctx, Consumer(Command(0, body=held)))
        body = body_of(ask(connection_handlers.handlers(ctx), 223, {"topic": "T", "group": "G"}))
        assert body == {"consumerTable": {"c@1": {T0: 7}}, "messageQueueTable": {}}
        assert ask(connection_handlers.handlers(ctx), 223, {"topic": "T", "group": "X"}).code == 1


# -- moving groups -------------------------------------------------------------------------------------


def test_a_group_is_moved_to_a_time(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        for _ in range(3):
            put(ctx)
            clock.now_ms += 1_000
        fields = {"topic": "T", "group": "G", "timestamp": str(NOW + 1_000), "isForce": "true"}
        answer = ask(reset_handlers.handlers(ctx), 222, fields)
        assert body_of(answer)["offsetTable"][T0] == 1
        assert len(body_of(answer)["offsetTable"]) == 4
        assert shape(loads(answer.body)) == shape(loads(golden("wire-reset-offset-resp").body))
        assert ctx.offsets.get("G", "T", 0) == 1 and ctx.offsets.reset_pending("G", "T", 0)
        answer = ask(reset_handlers.handlers(ctx), 222, {**fields, "timestamp": "-1", "queueId": "0"})
        assert body_of(answer)["offsetTable"] == {T0: 3}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "X"}, 17, "Topic X does not exist"),
        ({"group": "X"}, 26, "Group X does not exist"),
        ({"queueId": "0", "offset": "9"}, 1, "Target offset 9 not in consume queue range [0-1]"),
        ({"queueId": "0", "offset": "2"}, 0, None),
    ],
)
def test_a_reset_that_cannot_be_is_refused(tmp_path: Path, fields, code, remark):
    with stored_context(tmp_path) as ctx:
        put(ctx)
        answer = ask(reset_handlers.handlers(ctx), 222, {"topic": "T", "group": "G", "timestamp": "0", **fields})
        assert (answer.code, answer.remark) == (code, remark)


def test_with_resets_at_the_clients_each_of_them_is_told(tmp_path: Path):
    with stored_context(tmp_path, useServerSideResetOffset=False) as ctx:
        put(ctx)
        fields = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
        for queue_id in range(4):
            ctx.offsets.commit("G", "T", queue_id, 1, NOW)
        answer = ask(reset_handlers.handlers(ctx), 222, fields)
        assert answer.code == 206
        assert answer.remark == "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 0"
        consumer = Consumer()
        online(ctx, consumer)
        assert body_of(ask(reset_handlers.handlers(ctx), 222, fields))["offsetTable"][T0] == 0
        assert consumer.sent[-1][0] == 220


def test_a_replica_does_not_reset(tmp_path: Path):
    with stored_context(tmp_path, brokerRole="SLAVE", brokerId=1) as ctx:
        answer = ask(reset_handlers.handlers(ctx), 222, {"topic": "T", "group": "G", "timestamp": "0"})
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


def test_offsets_are_copied_from_group_to_group(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        ctx.offsets.commit("G", "T", 1, 7, NOW)
        assert ask(reset_handlers.handlers(ctx), 314, {"srcGroup": "G", "destGroup": "H", "offline": "true"}).code == 0
        assert ctx.offsets.get("H", "T", 1) == 7


# -- settings ------------------------------------------------------------------------------------------


def test_settings_are_shown_sorted_and_changed_by_the_allow_list_only(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = config_handlers.handlers(ctx)
        answer = ask(handlers, 26)
        lines = answer.body.decode().splitlines()
        assert lines == sorted(lines)
        assert "brokerName=broker-a" in lines
        assert json.loads(answer.fields["version"])["counter"] == 0
        assert ask(handlers, 25, body=b"maxMessageSize=1024\nnonsense=1\n").code == 0
        assert ctx.conf.store.message_bytes_max == 1024
        assert json.loads(ask(handlers, 26).fields["version"])["counter"] == 1
        for forbidden in (b"brokerConfigPath=/x", b"rocketmqHome=/x", b"configBlackList=a"):
            answer = ask(handlers, 25, body=forbidden)
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        assert ask(handlers, 25, body=b"storePathRootDir=/elsewhere").code == 16
        assert ask(handlers, 25, body=b"maxMessageSize=many").code == 1
        assert ask(handlers, 25, body=b"\xff\xfe").code == 1
        assert ctx.conf.store.message_bytes_max == 1024


def test_a_changed_permission_is_a_new_version_of_all_topics(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        told: list[tuple[str, ...]] = []
        ctx.topic_listeners.append(told.append)
        before = ctx.topics.version.counter
        assert ask(config_handlers.handlers(ctx), 25, body=b"brokerPermission=4").code == 0
        assert ctx.topics.version.counter == before + 1
        assert "T" in told[0]


def test_an_update_counts_even_when_the_operators_file_is_gone(tmp_path: Path, caplog):
    with stored_context(tmp_path) as ctx:
        ctx.conf = dataclasses.replace(ctx.conf, path=str(tmp_path / "gone.conf"))
        assert ask(config_handlers.handlers(ctx), 25, body=b"maxMessageSize=1024").code == 0
        assert ctx.conf.store.message_bytes_max == 1024
    assert "gone.conf" in caplog.text and "write them into the file by hand" in caplog.text


@pytest.mark.parametrize("text", ["haMasterAddress=", "haMasterAddress=h:1"])
def test_a_master_address_is_taken_away_for_good_by_an_empty_or_short_one(tmp_path: Path, caplog, text: str):
    file = tmp_path / "broker.conf"
    file.write_text("haMasterAddress=192.0.2.1:10912\n")
    with stored_context(tmp_path, haMasterAddress="192.0.2.1:10912") as ctx:
        ctx.conf = dataclasses.replace(ctx.conf, path=str(file))
        assert ask(config_handlers.handlers(ctx), 25, body=text.encode()).code == 0
        assert ctx.conf.replication.master_address is None
    conf = load_broker_conf(file)
    assert (conf.replication.master_address, conf.warnings) == (None, ())
    assert caplog.text.count("counts as not given") == (text != "haMasterAddress=")


# -- operations ----------------------------------------------------------------------------------------


def test_operators_chores_are_done(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = operation_handlers.handlers(ctx)
        put(ctx, topic="Gone")
        assert "Gone" in ctx.store.queues.topics()
        put(ctx)
        for code in (306, 316, 329, 905):
            assert ask(handlers, code).code == 0
        assert "Gone" not in ctx.store.queues.topics()
        assert ctx.store.max_offset("T", 0) == 1
        topics = body_of(ask(handlers, 305))["topicList"]
        assert {"SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "rmq_sys_wheel_timer"} <= set(topics)
        assert "T" not in topics


def test_features_that_are_not_there_answer_as_the_real_broker_without_them(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        handlers = operation_handlers.handlers(ctx)
        answer = ask(handlers, 1007)
        assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
        assert ask(handlers, 354).body == b'{"checkStatus":2}'
        assert ask(handlers, 355).remark == "export done."
        assert body_of(ask(handlers, 2003))["globalColdReadThreshold"] == 104_857_600
        assert all(ask(handlers, code).code == 1 for code in range(3001, 3011))


@pytest.mark.parametrize("code", [908, 2001, 2002, 2004])
def test_a_request_that_would_change_nothing_is_refused_with_the_reason(tmp_path: Path, code: int):
    with stored_context(tmp_path) as ctx:
        answer = ask(operation_handlers.handlers(ctx), code)
        assert answer.code == 3
        assert answer.remark.startswith(f"request {code} would have no effect: ")


# -- runtime -------------------------------------------------------------------------------------------

PLAIN_NUMBERS = """commitLogMinOffset commitLogMaxOffset dispatchBehindBytes dispatchMaxBuffer pageCacheLockTimeMills
earliestMessageTimeStamp sendThreadPoolQueueSize pullThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp
msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning
msgGetTotalTodayMorning msgGetTotalTodayNow putMessageTimesTotal putMessageSizeTotal timerOffsetBehind timerReadBehind
timerCongestNum startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs ackThreadPoolQueueCapacity""".split()


async def test_the_runtime_table_has_every_key_in_javas_form(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        put(ctx, DELAY="1")
        clock.now_ms += 61_000
        services.delays.deliver_due(clock())
        ctx.stats.puts("T").count += 10
        ctx.stats.tick(clock())
        table = runtime_info.runtime_table(ctx, services.timers)
        assert table["brokerActive"] == "true" and table["brokerVersionDesc"] == "V5_3_3"
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
        assert table["scheduleMessageOffset_1"] == "1,1"
        assert table["earliestMessageTimeStamp"] == str(NOW)
        for name in ("putTps", "getTransferredTps", "getFoundTps", "getMissTps"):
            assert table[name].endswith(" ") and len([float(word) for word in table[name].split()]) == 3
        for name in PLAIN_NUMBERS:
            int(table[name])
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 ")
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1
        assert table["commitLogDirCapacity"].startswith("Total : ")
        assert body_of(ask(runtime_info.handlers(ctx, services.timers), 28))["table"] == table


def test_delay_levels_in_use_show_delivered_and_end():
    assert runtime_info.schedule_rows({3: 7, 1: 2}, {1: 2, 3: 9}) == {
        "scheduleMessageOffset_1": "2,2",
        "scheduleMessageOffset_3": "7,9",
    }


def test_bytes_are_readable():
    assert [runtime_info.readable_bytes(n) for n in (0, 1023, 1024, 5 << 20, 252 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "252.0 GiB",
    ]
