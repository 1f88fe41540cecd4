"""The waiting client, against a broker that runs in another thread's loop."""

import asyncio
import inspect
import threading

import pytest
from tests.client.fake_cluster import FakeCluster

from twinlog import client
from twinlog.client import ClientClosed, ConsumerOptions, NoRoute, Outcome, Outgoing, StartFrom, sync
from twinlog.client.base_client import BaseClient
from twinlog.client.sync import Admin, PollConsumer, Producer, PullConsumer, PushConsumer


@pytest.fixture
def address():
    """A fake cluster in a thread of its own, so that the test itself may wait."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> FakeCluster:
        return await FakeCluster().__aenter__()

    cluster = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield cluster.address
    asyncio.run_coroutine_threadsafe(cluster.__aexit__(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_what_a_producer_sends_a_pull_consumer_reads(address):
    with Producer(address, "g") as producer, PullConsumer(address, "audit") as consumer:
        sent = [producer.send(Outgoing("T", f"{i}"), queue=producer.queues("T")[0]) for i in range(3)]
        producer.send_batch([Outgoing("T", "3")], queue=sent[0].queue)
        queue = sent[0].queue
        assert consumer.max_offset(queue) == 4
        assert [m.body for m in consumer.messages(queue, 1, 3)] == [b"1", b"2"]
        consumer.assign({queue: 2})
        assert [m.body for m in consumer.poll()] == [b"2", b"3"]
        consumer.commit()
        assert consumer.committed(queue) == 4


def test_a_push_consumer_calls_its_listener_in_threads_while_its_loop_goes_on(address):
    got: dict[bytes, threading.Thread] = {}
    both, arrived, release = threading.Barrier(2), threading.Semaphore(0), threading.Event()

    def listen(message):
        got[message.body] = threading.current_thread()
        both.wait(20)  # two messages are in the listener at the same time, or this raises
        arrived.release()
        release.wait(20)

    consumer = PushConsumer(address, "g", listen, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST))
    consumer.subscribe("T")
    with Producer(address, "p") as producer, consumer:
        for body in ("x", "y"):
            producer.send(Outgoing("T", body))
        assert arrived.acquire(timeout=20) and arrived.acquire(timeout=20)
        consumer.commit()  # needs the loop, and both threads of the listener are still busy
        loop_thread = consumer._loop.thread
        release.set()
    assert set(got) == {b"x", b"y"}
    assert len({*got.values(), loop_thread, threading.current_thread()}) == 4


def test_a_local_transaction_may_block(address):
    with Producer(address, "g") as producer:
        result = producer.send_in_transaction(Outgoing("T", "x"), lambda message: Outcome.COMMIT)
    assert result.outcome is Outcome.COMMIT


def test_errors_reach_the_caller_and_a_closed_client_raises(address):
    consumer = PullConsumer(address, "g")
    with consumer, pytest.raises(NoRoute):
        consumer.queues("Nowhere")
    with pytest.raises(ClientClosed):
        consumer.queues("T")
    consumer.close()


def test_admin_offers_the_asynchronous_methods_and_no_others(address):
    with Admin(address) as admin:
        assert admin.topic_masters("TBW102")
        with pytest.raises(AttributeError, match="no method 'nonsense'"):
            admin.nonsense()


def test_functions_for_moved_queues_may_call_the_consumer(address):
    def take(queues):
        for queue in queues:
            consumer.seek(queue, 1)

    options = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=600_000)
    consumer = PollConsumer(address, "g", consumer_options=options, on_take=take)
    consumer.subscribe("T")
    with Producer(address, "p") as producer:
        queue = producer.queues("T")[0]
        for body in ("0", "1", "2"):
            producer.send(Outgoing("T", body), queue=queue)
        with pytest.raises(ZeroDivisionError), consumer:
            assert [m.body for m in consumer.poll(20_000, count_max=1)] == [b"1"]
            assert [m.body for m in consumer.poll(20_000, count_max=1)] == [b"2"]
            raise ZeroDivisionError  # while it processes the second
    with PullConsumer(address, "g") as reader:
        assert reader.committed(queue) == 2


def test_a_consumer_that_polls_can_be_paused_and_moved(address):
    consumer = PollConsumer(address, "g", consumer_options=ConsumerOptions(start_from=StartFrom.FIRST))
    consumer.subscribe("T")
    with Producer(address, "p") as producer:
        queue = producer.queues("T")[0]
        for body in "xyz":
            producer.send(Outgoing("T", body), queue=queue)
        with consumer:
            found = []
            while len(found) < 3:
                found += [message.body for message in consumer.poll(20_000)]
            assert found == [b"x", b"y", b"z"] and queue in consumer.assignment()
            consumer.pause()
            consumer.seek(queue, 1)
            assert consumer.poll(10) == [] and consumer.position(queue) == 1
            consumer.resume()
            assert [message.body for message in consumer.poll(20_000)] == [b"y", b"z"]
            consumer.commit()
            assert consumer.committed(queue) == 3


def test_the_module_has_every_public_name_of_the_asynchronous_client():
    assert set(sync.__all__) == set(client.__all__)
    assert [name for name in sync.__all__ if not hasattr(sync, name)] == []


CLASSES = [name for name, kind in inspect.getmembers(client, inspect.isclass) if issubclass(kind, BaseClient)]


@pytest.mark.parametrize("name", CLASSES)
def test_a_blocking_class_has_every_public_method_with_its_docstring(name):
    plain, waits = getattr(client, name), getattr(sync, name)
    public = [method for method in dir(plain) if not method.startswith("_") and callable(getattr(plain, method))]
    assert [method for method in public if not callable(getattr(waits, method, None))] == []
    assert [method for method in public if not inspect.getdoc(getattr(waits, method))] == []
    assert inspect.getdoc(waits)
