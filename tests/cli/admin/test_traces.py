"""`twinlog admin queryMsgTraceById` joins the records of a message."""

import json

import pytest

from twinlog.cli.admin.app import run
from twinlog.client import Outgoing

PUB = "Pub|1700000000000|R|P|Orders|{id}|tag|k|127.0.0.1:10911|5|7|0|OFFSETID|true"
BEFORE = "SubBefore|1700000000001|R|G|REQ|{id}|2|k"
AFTER = "SubAfter|REQ|{id}|9|false|k|0|1700000000010|G"


@pytest.fixture
def traced(twinlog_broker_session):
    """The id of a message whose trace is in a trace topic of the test's own."""
    broker, message_id = twinlog_broker_session, "7F0000010ABC000000000001"
    broker.admin.create_topic("TestTraces", queues=1)
    for records in ((PUB,), (BEFORE, AFTER), (PUB.replace("{id}", "ANOTHER"),)):
        body = "".join(record.format(id=message_id).replace("|", "\x01") + "\x02" for record in records)
        broker.producer().send(Outgoing("TestTraces", body, keys=[message_id]))
    return message_id


def test_a_trace_shows_who_sent_and_who_consumed_a_message(twinlog_broker_session, traced, capsys):
    words = ["queryMsgTraceById", "-i", traced, "-t", "TestTraces", "-n", twinlog_broker_session.namesrv]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "#ProducerGroup" in shown and "#ConsumerGroup" in shown and "7ms" in shown and "9ms" in shown
    assert run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (send,), (consumed,) = data["sends"], data["consumptions"]
    assert (send["topic"], send["group"], send["status"], send["clientHost"]) == ("Orders", "P", "success", "127.0.0.1")
    assert (consumed["group"], consumed["retries"], consumed["costMs"], consumed["status"]) == ("G", 2, 9, "failed")


def test_a_message_without_a_trace_is_an_error_that_says_what_to_switch_on(twinlog_broker_session, traced, capsys):
    names = twinlog_broker_session.namesrv
    assert run(["queryMsgTraceById", "-i", "NOBODY", "-t", "TestTraces", "-n", names]) == 1
    assert "no trace of message 'NOBODY'" in capsys.readouterr().err
    assert run(["queryMsgTraceById", "-i", "NOBODY", "-t", "NoSuchTraces", "-n", names]) == 1
    assert "no broker has the trace topic 'NoSuchTraces'" in capsys.readouterr().err
