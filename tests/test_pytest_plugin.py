"""The fixtures that Twinlog ships, used as its users use them."""

import subprocess
import sys
import threading
import time

from twinlog.client import Outgoing
from twinlog.client import Producer as AsyncProducer


def test_a_message_can_be_sent_and_found(twinlog_broker):
    producer = twinlog_broker.producer()
    producer.send(Outgoing("Orders", b"one tea", tags="hot"))
    (message,) = twinlog_broker.messages("Orders")
    assert (message.body, message.tags) == (b"one tea", "hot")


def test_a_topic_that_does_not_exist_holds_nothing(twinlog_broker_session):
    assert twinlog_broker_session.messages("Nowhere") == []


def test_each_test_has_a_broker_of_its_own(twinlog_broker):
    assert "Orders" not in twinlog_broker.admin.topics()


def test_a_consumer_gets_what_was_sent_before_it_came(twinlog_broker_session):
    arrived, got = threading.Event(), []

    def listen(message):
        got.append(message.body)
        arrived.set()

    twinlog_broker_session.producer().send(Outgoing("Early", b"bird"))
    twinlog_broker_session.push_consumer("group", "Early", listen)
    assert arrived.wait(10)
    assert got == [b"bird"]


def test_the_session_broker_is_shared(twinlog_broker_session):
    assert "Early" in twinlog_broker_session.admin.topics()


async def test_asynchronous_clients_take_the_name_servers_address(twinlog_broker_session):
    async with AsyncProducer(twinlog_broker_session.namesrv, "g") as producer:
        sent = await producer.send(Outgoing("Async", b"x"))
    assert sent.queue_offset == 0


def test_a_broker_is_ready_in_about_a_second(request):
    started = time.monotonic()
    request.getfixturevalue("twinlog_broker")
    assert time.monotonic() - started < 5


def test_loading_the_plug_in_costs_nothing_until_a_fixture_is_used():
    program = "import sys, twinlog.pytest_plugin; print([m for m in sys.modules if m.startswith('twinlog.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['twinlog.pytest_plugin']"
