"""The real Java client, 5.5.0 and 4.9.7, against a Twinlog broker and, as a control, a real one.

Each test judges what one scenario of java/common saw. The first test of a server and client runs all the selected
scenarios beside each other in one JVM.
"""

from __future__ import annotations

from collections import Counter

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]
LATE_MS_MAX = 40_000  # far above what a busy machine adds to 2 s, and below the next minute


def scenario(name: str):
    return pytest.mark.parametrize("saw", [name], indirect=True)


def bodies(messages: list[dict]) -> list[str]:
    return [message["body"] for message in messages]


@scenario("sync")
def test_a_sync_send_is_stored_as_it_was_sent(saw):
    assert [sent["status"] for sent in saw["sent"]] == ["SEND_OK"] * 8
    stored = {message["msgId"]: message for message in saw["read"]}
    for number, sent in enumerate(saw["sent"]):
        message = stored.pop(sent["msgId"])
        assert message["body"] == f"sync-{number}-你好"
        assert (message["tags"], message["keys"], message["flag"]) == (f"tag{number % 2}", f"key{number}", number)
        assert message["properties"]["colour"] == f"blue {number}"
        assert message["properties"]["颜色"] == '蓝 🚀 = {"a":1}'
        assert (message["queueId"], message["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
    assert not stored


@scenario("sync")
def test_offset_message_ids_are_unique_and_carry_the_brokers_address(saw, cluster):
    ids = {sent["offsetMsgId"] for sent in saw["sent"]}
    assert len(ids) == 8
    assert {message_id[:16] for message_id in ids} == {f"7F000001{cluster.broker.port:08X}"}


@scenario("async")
def test_async_sends_are_all_answered_and_stored(saw):
    assert saw["answers"] == ["SEND_OK"] * 50
    assert sorted(saw["bodies"]) == sorted(f"async-{number}" for number in range(50))


@scenario("one_way")
def test_one_way_sends_arrive_without_an_answer(saw):
    assert sorted(saw["bodies"]) == [f"oneway-{number}" for number in range(10)]


@scenario("batch")
def test_a_batch_becomes_single_messages_in_order(saw):
    read = saw["read"]
    assert bodies(read) == [f"batch-{number}" for number in range(10)]
    assert [message["queueOffset"] for message in read] == list(range(10))
    assert [message["keys"] for message in read] == [f"batch-key-{number}" for number in range(10)]
    assert {message["queueId"] for message in read} == {saw["sent"]["queueId"]}
    assert len(saw["sent"]["offsetMsgId"].split(",")) == 10
    assert [message["msgId"] for message in read] == saw["sent"]["msgId"].split(",")


@scenario("compressed")
def test_compressed_bodies_stay_compressed_in_the_log_and_come_back_whole(saw):
    assert sorted(found["kind"] for found in saw["read"]) == sorted(saw["kinds"])
    assert all(found["whole"] and found["stored"] < saw["bytes"] / 10 for found in saw["read"])


@scenario("vip_channel")
def test_the_second_port_serves_clients_with_the_vip_channel_on(saw):
    assert sorted(saw["bodies"]) == [f"vip-{number}" for number in range(4)]


@scenario("auto_topic")
def test_a_send_to_an_unknown_topic_creates_it(saw):
    assert saw == {"status": "SEND_OK", "queues": 3, "perm": 6, "bodies": ["first of its topic"]}


@scenario("request_reply")
def test_a_request_gets_its_reply(saw):
    assert saw["replies"] == [f"reply to question {number}" for number in range(3)]


@scenario("signed")
def test_a_signature_is_ignored_without_access_control(saw):
    assert saw == {"status": "SEND_OK", "bodies": ["signed"]}


@scenario("refusals")
def test_a_body_over_the_limit_is_refused_with_message_illegal(saw):
    assert "CODE: 13 " in saw["too big"]


@scenario("refusals")
def test_properties_over_the_limit_are_refused_with_message_illegal(saw):
    assert "CODE: 13 " in saw["long properties"]


@scenario("tags")
def test_a_tag_subscription_gets_its_tags_only(saw):
    assert Counter(saw["bodies"]) == {"red": 2, "green": 2, "绿色": 1, "🚀": 1}


@scenario("sql92")
def test_a_sql92_subscription_gets_what_its_expression_selects(saw):
    assert sorted(saw["bodies"]) == ["sql-4", "sql-5", "sql-6", "sql-9"]


@scenario("sql92")
def test_a_broken_sql92_expression_is_refused_with_subscription_parse_failed(saw):
    assert "CODE: 23 " in saw["broken"]


@scenario("orderly")
def test_an_orderly_consumer_gets_each_queue_in_order_even_when_it_suspends(saw):
    assert saw["orders"] == {order: [str(step) for step in range(10)] for order in "012"}
    assert saw["attempts of 1:4"] >= 2


@scenario("orderly_take_over")
def test_an_orderly_consumer_takes_over_the_queues_of_one_that_left(saw):
    assert saw["shared"]
    for queue in "01":
        expected = [f"{part}{number}" for part in "ab" for number in range(int(queue), 10, 2)]
        assert list(dict.fromkeys(saw["queues"][queue])) == expected


@scenario("consume_directly")
def test_a_message_is_handed_to_one_consumer_and_its_state_is_shown(saw):
    assert saw["verdict"] == "CR_SUCCESS"
    assert len(saw["bodies"]) >= 2  # once from its queue, once by hand
    assert set(saw["bodies"]) == {"by hand"}
    assert saw["subscribed"] == 2  # its own topic and its retry topic
    assert saw["queues"] >= 1


@scenario("clustering")
def test_two_consumers_of_a_group_share_the_queues_and_one_takes_over(saw):
    assert saw["shared"]
    assert saw["taken over"]
    assert saw["first"]
    assert saw["second"]
    assert set(saw["first"] + saw["second"]) == {f"shared-{number}" for number in range(40)}
    assert saw["alone"] == [f"alone-{number}" for number in range(8)]


@scenario("volume")
def test_thousands_of_messages_in_flight_are_all_accepted_and_all_received(saw):
    assert saw == {"accepted": 6000, "received": 6000, "errors": []}


@scenario("from_last")
def test_a_new_group_reads_a_young_topic_from_its_beginning(saw):
    assert set(saw["bodies"]) == {"before", "after"}


@scenario("recreated_topic")
def test_a_topic_created_again_starts_from_nothing(saw):
    assert saw["offsets"] == [0, 1]
    assert saw["bodies"] == ["new-0", "new-1"]


@scenario("broadcasting")
def test_every_consumer_of_a_broadcasting_group_gets_everything(saw):
    everything = {f"all-{number}" for number in range(6)}
    assert set(saw["first"]) == everything
    assert set(saw["second"]) == everything


@scenario("lite_pull")
def test_a_lite_pull_consumer_polls_seeks_and_commits(saw):
    assert saw["even"] == [f"lite-{number}" for number in range(0, 10, 2)]
    assert saw["everything"] == saw["again"] == [f"lite-{number}" for number in range(10)]
    assert sum(saw["committed"]) >= 5


@scenario("pull")
def test_a_pull_answers_its_bounds_and_a_held_pull_wakes_on_arrival(saw):
    assert saw["third"] == ["pull-0", "pull-3"]
    assert (saw["min"], saw["max"], saw["next"]) == (0, 6, 6)
    assert (saw["beyond"], saw["beyond next"]) == ("OFFSET_ILLEGAL", 6)
    assert saw["none"] == "NO_NEW_MSG"
    assert saw["held"] == ["late"]
    assert 600 <= saw["waited"] < 15_000  # unless something wakes it, it is held for 20 s
    assert saw["offset kept"]


@scenario("reset_offset")
def test_a_group_whose_offset_was_reset_gets_its_messages_again(saw):
    assert saw["reset"] == [0]
    assert set(saw["again"]) == {f"again-{number}" for number in range(5)}


@scenario("delay_level")
def test_a_delay_level_delivers_after_its_time(saw):
    assert sorted(saw["bodies"]) == ["at once", "delayed", "warm-up"]
    assert 1_900 <= saw["delay"] < LATE_MS_MAX


@pytest.mark.parametrize("saw", ["timer", "timer_at"], indirect=True)
def test_a_timer_message_is_never_early(saw):
    assert sorted(saw["bodies"]) == ["at once", "delayed", "warm-up"]
    assert 2_400 <= saw["delay"] < LATE_MS_MAX


@scenario("retry")
def test_a_message_that_failed_comes_back_under_its_own_topic(saw):
    first, second = saw["seen"]
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert first["topic"] == second["topic"]
    assert (second["body"], second["tags"], second["keys"]) == ("unlucky", "t", "failing-key")
    assert second["msgId"] == first["msgId"]


@scenario("dead_letter")
def test_a_message_that_keeps_failing_ends_in_the_dead_letter_topic(saw):
    assert [message["reconsumeTimes"] for message in saw["seen"]] == [0, 1, 2]
    dead = saw["dead"][0]
    assert {message["body"] for message in saw["dead"]} == {"unlucky"}
    assert (dead["body"], dead["keys"]) == ("unlucky", "failing-key")
    assert dead["properties"]["RETRY_TOPIC"] == saw["seen"][0]["topic"]
    assert dead["properties"]["ORIGIN_MESSAGE_ID"]


@scenario("transaction")
def test_only_committed_transactions_are_delivered_and_unknown_ones_are_checked(saw):
    assert saw["sent"] == ["SEND_OK"] * 4
    assert set(saw["bodies"]) == {"commit", "unknown, then commit"}
    assert {"unknown, then commit", "unknown, then rollback"} <= set(saw["checks"])


@scenario("transaction")
def test_a_committed_message_keeps_its_tags_and_keys(saw):
    assert {(message["tags"], message["keys"]) for message in saw["described"]} == {("tx", "tx-key")}


@scenario("query")
def test_messages_are_found_by_id_and_by_key(saw):
    assert (saw["by unique id"], saw["by offset id"]) == ("first", "first")
    assert saw["key one"] == ["first"]
    assert saw["key two"] == ["first", "second"]
    assert "no message" in saw["no such key"]
    assert "no message" in saw["key two, long ago"]


@scenario("query")
def test_a_query_for_500_of_70_finds_the_newest_64(saw):
    assert saw["shared by 70"] == [f"body {number}" for number in range(6, 70)]


@scenario("query")
def test_offsets_are_found_by_time(saw):
    assert (saw["min"], saw["max"]) == (0, 2)
    assert (saw["offset before"], saw["offset between"]) == (0, 1)
    assert saw["offset after"] in (1, 2)  # Java: 4.x names the newest message, 5.x the place after it
    assert saw["before"] - 1_000 <= saw["earliest"] <= saw["between"] + 1_000
