"""`twinlog admin resendDLQ` delivers dead letters to their group again."""

import asyncio
import json
import time

import pytest

from twinlog.base.system_names import dlq_topic, retry_topic
from twinlog.cli.admin.app import run
from twinlog.client import Admin, Outgoing
from twinlog.client.admin.messages import TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of

TOPIC = "Letters"


@pytest.fixture
def group(twinlog_broker_session, request):
    """A group that has given up on three messages, which are in its dead letters."""
    broker, group = twinlog_broker_session, f"givers-up-{request.node.name[-20:]}"
    broker.admin.create_topic(TOPIC, queues=1)
    for number in range(3):
        broker.producer().send(Outgoing(TOPIC, f"{group} {number}", keys=f"k{number}", properties={"color": "red"}))
    asyncio.run(give_up(broker.namesrv, group))
    assert len(broker.messages(dlq_topic(group))) == 3
    return group


async def give_up(names, group):
    async with Admin(names) as admin:
        (queue,) = (await admin.session.route(TOPIC)).readable
        end = await admin.queue_calls.max_offset(queue)
        found = await admin.queue_calls.pull(group, queue, end - 3, subscription_of(TOPIC, "*"))
        for message in found.messages:
            await admin.queue_calls.send_back(group, queue, message, -1)


def resend(broker, capsys, *words, code=0):
    capsys.readouterr()
    assert run(["resendDLQ", *words, "-n", broker.namesrv, "--json"]) == code
    shown = capsys.readouterr()
    return shown.err if code else json.loads(shown.out)


def test_each_letter_is_delivered_to_its_group_once(twinlog_broker_session, group, capsys):
    broker = twinlog_broker_session
    rows = resend(broker, capsys, "-g", group, "--dryRun")
    assert [row["Topic"] for row in rows] == [TOPIC] * 3
    assert [row["Message ID"] for row in resend(broker, capsys, "-g", group, "-m", "2")] == [
        row["Message ID"] for row in rows[:2]
    ]
    assert [row["Message ID"] for row in resend(broker, capsys, "-g", group)] == [rows[2]["Message ID"]]
    assert resend(broker, capsys, "-g", group) == [], "all are delivered"
    assert len(resend(broker, capsys, "-g", group, "--all", "--dryRun")) == 3
    deadline = time.monotonic() + 20
    while len(broker.messages(retry_topic(group))) < 3:
        assert time.monotonic() < deadline, "they come after a second"
        time.sleep(0.05)
    bodies = sorted(message.body.decode() for message in broker.messages(retry_topic(group)))
    assert bodies == [f"{group} {number}" for number in range(3)]
    assert all(one.properties["RETRY_TOPIC"] == TOPIC for one in broker.messages(retry_topic(group)))


def test_one_letter_may_be_sent_to_its_topic_again(twinlog_broker_session, group, capsys):
    broker = twinlog_broker_session
    before = len(broker.messages(TOPIC))
    last = resend(broker, capsys, "-g", group, "-d")[-1]["Message ID"]
    assert len(resend(broker, capsys, "-g", group, "-i", last, "--toTopic")) == 1
    (sent,) = broker.messages(TOPIC)[before:]
    assert (sent.body.decode(), list(sent.keys), sent.properties["color"]) == (f"{group} 2", ["k2"], "red")
    assert len(resend(broker, capsys, "-g", group, "-d")) == 3, "a single one does not move the mark"


def test_a_mark_beyond_the_last_letter_hides_none(twinlog_broker_session, group, capsys):
    async def mark(names):
        async with Admin(names) as admin:
            (queue,) = (await admin.session.route(dlq_topic(group))).readable
            await admin.queue_calls.commit(TOOLS_GROUP, queue, 10)

    asyncio.run(mark(twinlog_broker_session.namesrv))
    assert len(resend(twinlog_broker_session, capsys, "-g", group)) == 3
    assert resend(twinlog_broker_session, capsys, "-g", group) == []


def test_a_group_without_dead_letters_is_an_error(twinlog_broker_session, capsys):
    error = resend(twinlog_broker_session, capsys, "-g", "content", code=1)
    assert "group 'content' has no dead letters" in error
