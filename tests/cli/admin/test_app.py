"""`twinlog admin` against a real Twinlog broker: mqadmin's commands, flag by flag."""

import json
import os

import pytest

from twinlog.cli.admin import exports
from twinlog.cli.admin.app import COMMANDS, find, load_commands, overview, parser_of, run
from twinlog.client import Outgoing

CLUSTER = "DefaultCluster"


@pytest.fixture
def broker(twinlog_broker_session):
    return twinlog_broker_session


@pytest.fixture
def admin(broker, capsys):
    """Runs a command with --json; its data."""

    def call(*words: str, code: int = 0):
        capsys.readouterr()
        assert run([*words, "-n", broker.namesrv, "--json"]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out) if code == 0 else captured.err

    return call


@pytest.fixture
def report(broker, capsys):
    """Runs a command; what it prints for people."""

    def call(*words: str) -> str:
        capsys.readouterr()
        assert run([*words, "-n", broker.namesrv]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="session")
def topic(twinlog_broker_session) -> str:
    """A topic with five messages in its queue 0, and a group that has consumed two of them."""
    broker = twinlog_broker_session
    broker.admin.create_topic("AdminTopic", queues=2)
    producer = broker.producer("admin-producer")
    queue = producer.queues("AdminTopic")[0]
    for i in range(5):
        producer.send(
            Outgoing("AdminTopic", f"body {i}", tags="even" if i % 2 == 0 else "odd", keys=f"k{i}"), queue=queue
        )
    reader = broker.pull_consumer("admin-group")
    reader.queues("AdminTopic")
    reader.pull(queue, 0)
    reader.commit(queue, 2)
    return "AdminTopic"


def test_every_command_has_a_help_page_and_a_place_in_the_overview():
    load_commands()
    text = overview()
    for command in COMMANDS.values():
        assert f"  {command.name} " in text
        assert command.summary in " ".join(parser_of(command).format_help().split())
    assert len(COMMANDS) >= 50


def test_commands_are_found_in_any_case():
    load_commands()
    assert find("TOPICLIST") is find("topicList") is COMMANDS["topicList"]


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_without_a_command_the_overview_is_shown(words, capsys):
    assert run(words) == 0
    assert "topicStatus" in capsys.readouterr().out


def test_the_error_for_an_unknown_command_names_the_list_of_commands(capsys):
    assert run(["nonsense"]) == 2
    assert "no command 'nonsense'" in capsys.readouterr().err


def test_a_missing_option_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        run(["topicRoute"])
    assert stopped.value.code == 2
    assert "-t/--topic" in capsys.readouterr().err


def test_a_name_server_that_is_not_there_is_named(capsys):
    assert run(["topicList", "-n", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_the_cluster_and_its_broker_are_listed(admin, report, broker):
    (row,) = admin("clusterList")
    assert (row["Cluster Name"], row["Addr"], row["ACTIVATED"]) == (CLUSTER, broker.address, "true")
    assert "#InTotalToday" in report("clusterList", "-m")


def test_a_topic_is_created_changed_listed_and_deleted(admin):
    created = admin("updateTopic", "-t", "New", "-c", CLUSTER, "-r", "3", "-w", "3")
    assert created["topicConfig"]["readQueueNums"] == 3
    assert "New" in admin("topicList")
    (queues,) = admin("topicRoute", "-t", "New")["queueDatas"]
    assert (queues["writeQueueNums"], queues["perm"]) == (3, 6)
    assert "from 6 to 4" in admin("updateTopicPerm", "-t", "New", "-c", CLUSTER, "-p", "4")[0]
    assert admin("topicClusterList", "-t", "New") == [CLUSTER]
    admin("deleteTopic", "-t", "New", "-c", CLUSTER)
    assert "New" not in admin("topicList")


def test_an_order_topic_keeps_its_queue_list_at_the_name_server(admin):
    admin("updateTopic", "-t", "Ordered", "-c", CLUSTER, "-w", "2", "-o", "true")
    assert admin("updateOrderConf", "-t", "Ordered", "-m", "get")["orderConf"].endswith(":2")
    admin("updateOrderConf", "-t", "Ordered", "-m", "delete")
    assert "No config item" in admin("updateOrderConf", "-t", "Ordered", "-m", "get", code=1)


def test_offsets_of_a_topics_queues_are_shown(admin, topic):
    rows = admin("topicStatus", "-t", topic)
    assert [(row["QID"], row["Min Offset"], row["Max Offset"]) for row in rows] == [(0, 0, 5), (1, 0, 0)]


def test_the_error_for_an_unknown_topic_names_the_command_that_creates_it(admin):
    assert "updateTopic -t Nowhere" in admin("topicStatus", "-t", "Nowhere", code=1)


def test_queues_are_shared_as_consumers_would(admin, topic):
    shares = admin("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2")["result"]
    assert {member: [queue["queueId"] for queue in share] for member, share in shares.items()} == {
        "10.0.0.1": [0],
        "10.0.0.2": [1],
    }


def test_messages_are_found_by_key_by_id_and_by_offset(admin, report, topic):
    (found,) = admin("queryMsgByKey", "-t", topic, "-k", "k3")
    assert (found["queueOffset"], found["body"]) == (3, "body 3")
    assert admin("queryMsgByUniqueKey", "-t", topic, "-i", found["messageId"])[0]["body"] == "body 3"
    assert admin("queryMsgById", "-t", topic, "-i", found["offsetMessageId"])[0]["body"] == "body 3"
    assert "body 3" in report("queryMsgByKey", "-t", topic, "-k", "k3")
    text = report("queryMsgByOffset", "-t", topic, "-b", "broker-dev", "-i", "0", "-o", "1")
    assert "body 1" in text
    assert "admin-group" in text and "CONSUMED" in text


def test_the_error_for_an_offset_without_message_has_the_range_of_the_queue(admin, topic):
    error = admin("queryMsgByOffset", "-t", topic, "-b", "broker-dev", "-i", "0", "-o", "99", code=1)
    assert "holds 0 up to 5" in error


def test_messages_are_printed_filtered_and_counted(admin, topic):
    assert [m["body"] for m in admin("printMsg", "-t", topic, "-s", "odd")] == ["body 1", "body 3"]
    counted = admin("printMsgByQueue", "-t", topic, "-a", "broker-dev", "-i", "0", "-p", "true", "-f", "true")
    assert counted["tags"] == {"even": 3, "odd": 2}
    words = ("consumeMessage", "-t", topic, "-b", "broker-dev", "-i", "0", "-o", "2", "-c", "2")
    assert [m["body"] for m in admin(*words)] == ["body 2", "body 3"]


def test_entries_of_a_consume_queue_are_shown(admin, topic, broker):
    found = admin("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", broker.address)
    assert (found["maxQueueIndex"], len(found["queueData"])) == (5, 2)


def test_progress_is_shown_by_group_and_in_full(admin, report, topic):
    (row,) = [
        row for row in admin("consumerProgress", "-g", "admin-group") if row["QID"] == 0 and row["Topic"] == topic
    ]
    assert (row["Broker Offset"], row["Consumer Offset"], row["Diff"]) == (5, 2, 3)
    assert "Consume Diff Total: 3" in report("consumerProgress", "-g", "admin-group")
    assert "admin-group" in {row["Group"] for row in admin("consumerProgress")}


def test_offsets_are_moved_skipped_and_copied(admin, topic, broker):
    moved = admin("resetOffsetByTime", "-g", "admin-group", "-t", topic, "-s", "0")
    assert {row["queueId"]: row["offset"] for row in moved} == {0: 0, 1: 0}
    words = (
        "resetOffsetByTime",
        "-g",
        "admin-group",
        "-t",
        topic,
        "-s",
        "0",
        "-b",
        broker.address,
        "-q",
        "0",
        "-o",
        "2",
    )
    assert [row["offset"] for row in admin(*words)] == [2]
    skipped = admin("skipAccumulatedMessage", "-g", "clone-group", "-t", topic, code=1)
    assert "clone-group" in skipped
    admin("updateSubGroup", "-g", "clone-group", "-c", CLUSTER)
    admin("cloneGroupOffset", "-s", "admin-group", "-d", "clone-group", "-t", topic, "-o", "true")
    assert broker.pull_consumer("clone-group", register=False).committed(broker.producer().queues(topic)[0]) == 2


def test_a_group_is_created_shown_and_deleted(admin):
    admin("updateSubGroup", "-g", "NewGroup", "-c", CLUSTER, "-r", "3", "-o", "true")
    (config,) = admin("getConsumerConfig", "-g", "NewGroup").values()
    assert (config["retryMaxTimes"], config["consumeMessageOrderly"]) == (3, True)
    admin("deleteSubGroup", "-g", "NewGroup", "-c", CLUSTER)
    assert "no broker has consumer group" in admin("getConsumerConfig", "-g", "NewGroup", code=1)


def test_connected_clients_are_listed(admin, topic, broker):
    connected = admin("consumerConnection", "-g", "admin-group")
    assert [c["language"] for c in connected["connectionSet"]] == ["PYTHON"]
    assert topic in connected["subscriptionTable"]
    (producer,) = admin("producerConnection", "-g", "admin-producer", "-t", topic)
    assert producer["Version"] == "V5_3_3"
    assert "admin-producer" in admin("producer", "-b", broker.address)
    assert "no broker has" in admin("consumerConnection", "-g", "nobody", code=1)


def test_a_push_consumer_reports_its_state_and_consumes_on_demand(admin, topic, broker):
    got = []
    broker.push_consumer("status-group", topic, lambda message: got.append(message.body))
    (info,) = admin("consumerStatus", "-g", "status-group").values()
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    (member,) = admin("consumerConnection", "-g", "status-group")["connectionSet"]
    (message,) = admin("queryMsgByKey", "-t", topic, "-k", "k4")
    words = ("-i", message["messageId"], "-g", "status-group", "-d", member["clientId"])
    assert admin("queryMsgByUniqueKey", "-t", topic, *words)["consumeResult"] == "CR_SUCCESS"


def test_a_message_is_sent_and_timed(admin, topic):
    (sent,) = admin("sendMessage", "-t", "Sent", "-p", "hello", "-k", "key", "-c", "tag")
    assert sent["Send Result"] == "SEND_OK"
    (found,) = admin("queryMsgByKey", "-t", "Sent", "-k", "key")
    assert (found["body"], found["tags"]) == ("hello", "tag")
    assert len(admin("checkMsgSendRT", "-t", "Sent", "-a", "3")) == 3


def test_broker_configuration_is_read_and_changed(admin, broker):
    admin("updateBrokerConfig", "-b", broker.address, "-k", "fileReservedTime", "-v", "48")
    assert admin("getBrokerConfig", "-b", broker.address)["fileReservedTime"] == "48"
    assert "brokerVersionDesc" in admin("brokerStatus", "-b", broker.address)


def test_a_key_of_java_s_that_has_no_effect_is_refused(admin, broker):
    err = admin("updateBrokerConfig", "-b", broker.address, "-k", "serverWorkerThreads", "-v", "4", code=1)
    assert "RocketMQ has this key, and Twinlog does not read it" in err


def test_a_refused_update_shows_the_brokers_remark_only(admin, broker):
    err = admin("updateBrokerConfig", "-b", broker.address, "-k", "listenPort", "-v", "4", code=1)
    assert err.strip().endswith("listenPort=4: only a restart changes this; write it into the configuration file")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "noon"),
            "'noon' is not a time: write now, milli",
        ),
        (("updateTopic", "-t", "T", "-c", "C", "-r", "-5"), "'-5' is not a number of 0 or more"),
        (("updateTopic", "-t", "T", "-c", "C", "-o", "perhaps"), "'perhaps' is neither true nor false"),
    ],
)
def test_the_error_for_an_invalid_value_shows_valid_ones(words, problem, capsys):
    with pytest.raises(SystemExit):
        run(words)
    assert problem in capsys.readouterr().err


def test_name_server_configuration_and_kv_entries_are_read_and_changed(admin):
    assert "listenPort" in next(iter(admin("getNamesrvConfig").values()))
    admin("updateKvConfig", "-s", "ns", "-k", "key", "-v", "value")
    assert admin("getKvConfig", "-s", "ns") == {"key": "value"}
    admin("deleteKvConfig", "-s", "ns", "-k", "key")
    assert admin("getKvConfig", "-s", "ns") == {}


def test_a_broker_is_taken_off_the_routes_and_put_back(admin, topic):
    assert next(iter(admin("wipeWritePerm", "-b", "broker-dev").values())) > 0
    assert admin("topicRoute", "-t", topic)["queueDatas"][0]["perm"] == 4
    assert next(iter(admin("addWritePerm", "-b", "broker-dev").values())) > 0
    assert admin("topicRoute", "-t", topic)["queueDatas"][0]["perm"] == 6


@pytest.mark.parametrize("name", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
def test_housekeeping_runs_on_one_broker_or_on_all_and_counts(admin, report, broker, name):
    assert admin(name, "-b", broker.address) == {broker.address: 0}
    assert admin(name) == {broker.address: 0}
    assert " deleted" in report(name)


def test_statistics_and_replication_state_are_shown(admin, topic, broker):
    assert topic in {row["Topic"] for row in admin("statsAll", "-t", topic)}
    assert admin("haStatus", "-b", broker.address)[broker.address]["master"] is True
    assert {"Topic", "Diff"} <= admin("brokerConsumeStats", "-b", broker.address)[0].keys()


def test_metadata_configuration_and_metrics_are_exported(admin, topic, tmp_path):
    exported = admin("exportMetadata", "-c", CLUSTER, "-f", str(tmp_path))
    assert topic in exported["topicConfigTable"]
    assert topic in json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]
    assert admin("exportConfigs", "-c", CLUSTER, "-f", str(tmp_path))["clusterScale"]["masterBrokerSize"] == 1
    assert "broker-dev" in admin("exportMetrics", "-c", CLUSTER, "-f", str(tmp_path))["evaluateReport"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_the_default_folder_is_not_used_when_another_user_made_it(admin, tmp_path, monkeypatch):
    folder = tmp_path / "rocketmq" / "export"
    folder.mkdir(parents=True)
    os.chown(folder.parent, 65534, 65534)
    monkeypatch.setattr(exports, "DEFAULT_FOLDER", folder)
    refused = admin("exportConfigs", "-c", CLUSTER, "-f", str(folder), code=1)
    assert f"{folder.parent} belongs to user 65534: give a folder of your own with -f" in refused
    assert not list(folder.iterdir())


def test_an_export_leaves_the_target_of_a_planted_link_alone(admin, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "configs.json").symlink_to(victim)
    (tmp_path / "configs.json.tmp").symlink_to(victim)
    admin("exportConfigs", "-c", CLUSTER, "-f", str(tmp_path))
    assert victim.read_text() == "precious"


def test_many_topics_and_groups_come_from_a_file(admin, tmp_path):
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": "Many1"}, {"topicName": "Many2", "readQueueNums": 1}]))
    groups.write_text(json.dumps([{"groupName": "ManyGroup"}]))
    admin("updateTopicList", "-c", CLUSTER, "-f", str(topics))
    admin("updateSubGroupList", "-c", CLUSTER, "-f", str(groups))
    assert {"Many1", "Many2"} <= set(admin("topicList"))
    assert admin("getConsumerConfig", "-g", "ManyGroup")


def test_a_cluster_that_is_not_there_is_named(admin):
    assert "cluster 'Other' is not registered; there are: DefaultCluster" in admin(
        "brokerStatus", "-c", "Other", code=1
    )


def test_flags_of_mqadmin_that_change_nothing_are_taken_with_a_warning(broker, topic, capsys):
    assert run(["queryMsgByKey", "-t", topic, "-k", "k1", "-c", CLUSTER, "-n", broker.namesrv]) == 0
    assert "-c cluster, or parent topic of a light queue (not used here)" in capsys.readouterr().err


def test_a_message_can_be_sent_again(report, admin, broker):
    broker.producer().send(Outgoing("Again", "encore", keys="again-key"))
    (message,) = admin("queryMsgByKey", "-t", "Again", "-k", "again-key")
    assert "Sent Again As" in report("queryMsgById", "-i", message["offsetMessageId"], "-t", "Again", "-s", "true")
    assert len(admin("queryMsgByKey", "-t", "Again", "-k", "again-key")) == 2


def test_bodies_are_shown_in_the_character_set_that_is_named(report, admin, broker):
    broker.producer().send(Outgoing("Charset", "茶".encode("gbk"), keys="c"))
    assert "茶" in report("printMsg", "-t", "Charset", "-c", "GBK")
    assert "unknown" in admin("printMsg", "-t", "Charset", "-c", "klingon", code=1)
