"""When a send is answered, and when its message can be read, under SYNC_FLUSH and SYNC_MASTER."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import TIMER_TOPIC
from twinlog.broker.broker import Broker
from twinlog.broker.deferred.timer_file import TimerFile
from twinlog.broker.sends.pending_sends import Demand, NoReplicas
from twinlog.metadata.errors import NotSaved
from twinlog.metadata.tables import MetadataTables
from twinlog.store.errors import FlushFailed
from twinlog.store.file_ops import FileOps
from twinlog.store.message_store import MessageStore
from twinlog.store.recovery.checkpoint import load_checkpoint
from twinlog.store.run_flags import RunFlags


async def test_with_sync_flush_an_answered_message_is_on_disk_and_readable(tmp_path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running_broker(conf) as broker, connected(broker) as client:
        for _ in range(5):
            assert (await send(client)).code == 0
            assert broker.context.store.flushed_end == broker.context.store.log_end
        assert (await pull(client)).fields["maxOffset"] == "5"


async def test_sends_that_wait_together_share_a_flush(tmp_path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running_broker(conf) as broker, connected(broker) as client:
        store, flushes, gate = broker.context.store, [], threading.Event()
        flush = store.flush

        def slow_flush() -> int:
            gate.wait(5)
            flushes.append(store.log_end)
            return flush()

        store.flush = slow_flush
        sends = [asyncio.create_task(send(client)) for _ in range(20)]
        while broker.context.store.max_offset("T", 0) or store.log_end == 0:
            await asyncio.sleep(0)
        gate.set()
        assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
        assert len(flushes) <= 3


async def test_a_flush_that_takes_too_long_is_reported(tmp_path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=1)
    async with running_broker(conf) as broker, connected(broker) as client:
        gate = threading.Event()
        store, flush = broker.context.store, broker.context.store.flush
        store.flush = lambda: gate.wait(5) and flush()
        answer = await send(client)
        assert answer.code == 10
        assert answer.fields["queueOffset"] == "0"
        gate.set()


async def test_a_message_that_does_not_want_to_wait_is_answered_at_once(tmp_path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running_broker(conf) as broker, connected(broker) as client:
        gate = threading.Event()
        store, flush = broker.context.store, broker.context.store.flush
        store.flush = lambda: gate.wait(5) and flush()
        assert (await send(client, i="WAIT\x01false\x02")).code == 0
        gate.set()


async def test_after_a_failed_flush_no_send_is_acknowledged(tmp_path):
    conf = broker_conf(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=1)
    async with running_broker(conf) as broker, connected(broker) as client:
        store, flush = broker.context.store, broker.context.store.flush

        def failing() -> int:
            raise FlushFailed(tmp_path, OSError(5, "Input/output error"))

        store.flush = failing
        assert (await send(client)).code == 10
        store.flush = flush
        assert (await send(client)).code == 10


async def test_a_synchronous_master_without_replicas_reports_it(tmp_path):
    async with running_broker(broker_conf(tmp_path, brokerRole="SYNC_MASTER")) as broker, connected(broker) as client:
        answer = await send(client)
        assert answer.code == 11
        assert answer.fields["queueOffset"] == "0"


async def test_a_synchronous_master_answers_when_its_replica_has_the_message(tmp_path):
    async with running_broker(broker_conf(tmp_path, brokerRole="SYNC_MASTER")) as broker, connected(broker) as client:
        pending, asked = broker.context.pending_sends, asyncio.Event()

        class KeepsUp(NoReplicas):
            def demand(self, end: int) -> Demand:
                asked.set()
                return Demand.WAIT

        pending.replicas = KeepsUp()
        sending = asyncio.create_task(send(client))
        await asked.wait()
        flushed = broker.context.store.flushed_end
        pending.replicated(broker.context.store.log_end)
        assert (await sending).code == 0
        assert broker.context.store.flushed_end == flushed  # ASYNC_FLUSH: nobody asked the disk


async def test_a_replica_that_is_too_slow_is_reported(tmp_path):
    conf = broker_conf(tmp_path, brokerRole="SYNC_MASTER", slaveTimeout=1)
    async with running_broker(conf) as broker, connected(broker) as client:

        class Slow(NoReplicas):
            def demand(self, end: int) -> Demand:
                return Demand.WAIT

        broker.context.pending_sends.replicas = Slow()
        assert (await send(client)).code == 12


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_the_time_that_sends_take_is_measured_until_they_are_answered(tmp_path, flush):
    conf = broker_conf(tmp_path, flushDiskType=flush)
    async with running_broker(conf) as broker, connected(broker) as client:
        for number in range(3):
            assert (await send(client)).code == 0  # without a unique key: the long way
            assert (await send(client, i=f"UNIQ_KEY\x01A{number}\x02")).code == 0
        await pull(client)
        table = msgspec.json.decode((await client.request(28)).body)["table"]
        assert sum(int(part.rpartition(":")[2]) for part in table["putMessageDistributeTime"].split()) == 6
        assert 0 < broker.context.stats.put_times.percentile_ms(0.99) <= 10_000
        assert broker.context.stats.longest_get_s > 0


async def test_queues_that_failed_are_tried_again_at_every_interval(tmp_path):
    conf = broker_conf(tmp_path, flushIntervalConsumeQueue=5)
    async with running_broker(conf) as broker, connected(broker) as client:
        await send(client)
        store = broker.context.store
        store.flags.set(RunFlags.LOGICS_QUEUE_ERROR)
        assert (await send(client)).code == 14
        async with asyncio.timeout(5):
            while store.queues_failed:
                await asyncio.sleep(0.005)
        assert (await send(client)).code == 0


@pytest.mark.parametrize("thorough_ms", [60_000, 5])
async def test_short_tails_of_many_queues_wait_for_the_thorough_flush(tmp_path, monkeypatch, thorough_ms):
    monkeypatch.setattr("twinlog.store.queues.queue_table.FEW_QUEUES", 0)
    saved = asyncio.Event()
    monkeypatch.setattr(MessageStore, "save_checkpoint", _then(MessageStore.save_checkpoint, saved))
    intervals = {"flushIntervalConsumeQueue": 5, "flushConsumeQueueThoroughInterval": thorough_ms}
    conf = broker_conf(tmp_path, flushConsumeQueueLeastPages=0, **intervals)
    async with running_broker(conf) as broker, connected(broker) as client:
        store = broker.context.store
        await send(client)
        async with asyncio.timeout(5):
            await saved.wait()
        # Recovery after a crash begins before messages that no file of a queue has.
        assert bool(store.checkpoint.logics_timestamp) == (thorough_ms == 5)
    assert load_checkpoint(tmp_path / "checkpoint").logics_timestamp > 0, "a stop writes all queues"


def _then(function, event):
    loop = asyncio.get_running_loop()

    def wrapped(*args):
        function(*args)
        loop.call_soon_threadsafe(event.set)

    return wrapped


async def test_metadata_that_cannot_be_saved_at_the_end_is_an_error(tmp_path, monkeypatch):
    def full(*_: object) -> list[str]:
        raise OSError(28, "the disk is full")

    with pytest.raises(NotSaved, match=r"could not be saved: .*full; the files keep what was saved before"):
        async with running_broker(broker_conf(tmp_path)):
            monkeypatch.setattr("twinlog.metadata.tables.MetadataTables.save", full)


async def test_a_broker_that_stops_flushes_the_log_before_it_saves_progress(tmp_path, monkeypatch):
    """Power loss between the two must not leave a delay offset ahead of the copies that it counts."""
    unflushed = []

    def noted(kind: type, name: str) -> None:
        save = getattr(kind, name)

        def saving(self: object, *given: object) -> object:
            unflushed.append(store.log_end - store.flushed_end)
            return save(self, *given)

        monkeypatch.setattr(kind, name, saving)

    # Nothing flushes by itself: only the stop does.
    async with (
        running_broker(broker_conf(tmp_path, flushIntervalCommitLog=600_000)) as broker,
        connected(broker) as client,
    ):
        store = broker.context.store
        assert (await send(client, i="TIMER_DELAY_MS\x013600000\x02")).code == 0
        while not store.max_offset(TIMER_TOPIC, 0):
            await asyncio.sleep(0.01)
        noted(MetadataTables, "save")
        noted(TimerFile, "save")
    assert len(unflushed) == 2 and not any(unflushed)


async def test_a_last_flush_that_fails_once_ends_the_broker_with_an_error_and_no_progress_is_saved(
    tmp_path, monkeypatch
):
    real, failures = FileOps.flush, []

    def failing(self: FileOps, *given: object) -> None:
        if not failures:
            failures.append(given)
            raise OSError(5, "the disk refuses")
        real(self, *given)  # later calls succeed, and prove nothing

    saved = []
    with pytest.raises(FlushFailed):
        async with running_broker(broker_conf(tmp_path, flushIntervalCommitLog=600_000)) as broker:
            async with connected(broker) as client:
                assert (await send(client, i="DELAY\x011\x02")).code == 0
            monkeypatch.setattr(FileOps, "flush", failing)
            monkeypatch.setattr(MetadataTables, "save", lambda self: saved.append("tables"))
            monkeypatch.setattr(TimerFile, "save", lambda *given: saved.append("timers"))
    store = broker.context.store
    assert (len(failures), saved, store.flushed_end < store.log_end) == (1, [], True)
    assert (tmp_path / "abort").exists()


async def test_a_clock_that_is_set_back_keeps_no_answer_waiting(tmp_path):
    class Waiting(NoReplicas):
        def demand(self, end):
            return Demand.WAIT

    conf, hours = broker_conf(tmp_path, brokerRole="SYNC_MASTER", slaveTimeout=200), [1]
    broker = Broker(conf, wall_ms=lambda: wall_clock_ms() + hours[0] * 3_600_000)
    running = asyncio.create_task(broker.run())
    try:
        while broker.replication is None or not broker.replication.master.port or not broker.servers:
            await asyncio.sleep(0.01)
        async with connected(broker) as client:
            broker.context.pending_sends.replicas = Waiting()
            answer = asyncio.create_task(send(client))
            while not broker.context.pending_sends.waits_for_replicas:
                await asyncio.sleep(0)
            hours[0] = 0
            assert (await answer).code == 12
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_send_that_waits_for_the_disk_does_not_wait_for_the_threads_that_others_use(tmp_path):
    async with running_broker(broker_conf(tmp_path, flushDiskType="SYNC_FLUSH")) as broker, connected(broker) as client:
        loop, gate = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(crowded := ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, gate.wait, 5)
        assert (await send(client)).code == 0
        assert not blocked.done()
        gate.set()
        await blocked
        crowded.shutdown()
