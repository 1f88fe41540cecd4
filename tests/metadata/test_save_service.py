"""Saving waits for nothing but the disk, and many changes share one write."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.offsets import OffsetTable
from twinlog.metadata.save_service import SaveService
from twinlog.metadata.topics import TopicTable
from twinlog.wire.bodies import TopicConfig


class CountingFile(FileWithBackup):
    """Counts saves, fails the first `failures` of them, and tells the event loop of the first that worked."""

    def __init__(self, path, failures=0):
        super().__init__(path)
        self.saves = 0
        self.failures = failures
        self.written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def save(self, chunks):
        self.saves += 1
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        super().save(chunks)
        self._loop.call_soon_threadsafe(self.written.set)


def topics_on_disk(file: FileWithBackup) -> set[str]:
    return set(json.loads(file.path.read_text())["topicConfigTable"])


def create(topics: TopicTable, name: str) -> None:
    topics.put(name, TopicConfig(topic_name=name), 1)


def ignore(table, error) -> None:
    pass


async def test_a_creation_is_on_disk_when_saved_returns_and_crowds_share_writes(tmp_path):
    file = CountingFile(tmp_path / "topics.json")
    topics = TopicTable(file, 1)
    service = SaveService([topics], {}, ignore)

    async def create_and_wait(name: str) -> None:
        create(topics, name)
        await service.saved(topics)
        assert name in topics_on_disk(file)

    await asyncio.gather(*(create_and_wait(f"T{n}") for n in range(20)))
    assert file.saves <= 2


async def test_a_clean_table_is_not_written_for_asking(tmp_path):
    file = CountingFile(tmp_path / "topics.json")
    service = SaveService([topics := TopicTable(file, 1)], {}, ignore)
    await service.saved(topics)
    assert file.saves == 0


async def test_an_eager_table_is_written_when_it_changes_and_a_lazy_one_by_the_clock(tmp_path):
    topics = TopicTable(topics_file := CountingFile(tmp_path / "topics.json"), 1)
    offsets = OffsetTable(offsets_file := CountingFile(tmp_path / "consumerOffset.json"), 1)
    service = SaveService([topics], {offsets: 0.01}, ignore)
    task = asyncio.create_task(service.run())
    create(topics, "T")
    offsets.commit("G", "T", 0, 5, 1)
    async with asyncio.timeout(5):
        await topics_file.written.wait()
        await offsets_file.written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert topics_on_disk(topics_file) == {"T"}


async def test_a_full_disk_is_reported_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.metadata.save_service.RETRY_S", 0)
    file, reported = CountingFile(tmp_path / "topics.json", failures=2), []
    topics = TopicTable(file, 1)
    service = SaveService([topics], {}, lambda table, error: reported.append((table, error.errno)))
    task = asyncio.create_task(service.run())
    create(topics, "T")
    async with asyncio.timeout(5):
        await file.written.wait()
    task.cancel()
    assert reported == [(topics, 28)] * 2


async def test_who_waits_for_a_save_hears_that_the_disk_is_full(tmp_path):
    topics = TopicTable(CountingFile(tmp_path / "topics.json", failures=1), 1)
    create(topics, "T")
    with pytest.raises(OSError, match="No space"):
        await SaveService([topics], {}, ignore).saved(topics)
    assert topics.dirty


async def test_a_creation_does_not_wait_for_the_threads_that_others_use(tmp_path):
    loop, gate = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(crowded := ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, gate.wait, 5)
    topics = TopicTable(file := CountingFile(tmp_path / "topics.json"), 1)
    service = SaveService([topics], {}, ignore)
    create(topics, "T")
    await service.saved(topics)
    assert topics_on_disk(file) == {"T"}
    assert not blocked.done()
    gate.set()
    await blocked
    crowded.shutdown()


async def test_what_waits_for_a_save_when_the_service_ends_is_still_saved(tmp_path):
    topics = TopicTable(file := CountingFile(tmp_path / "topics.json"), 1)
    service = SaveService([topics], {}, ignore)
    task = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    create(topics, "T")
    await service.saved(topics)
    assert topics_on_disk(file) == {"T"}
