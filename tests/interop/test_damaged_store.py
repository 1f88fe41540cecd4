"""A store that was damaged and repaired by Twinlog: Java goes on with all of it, although it knows no quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.java_rocketmq import TEST_CONF, JavaRocketmq

from twinlog.settings.store import StoreSettings
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.offline.verify import verify_store

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]
SEGMENT = int(TEST_CONF["mappedFileSizeCommitLog"])
INDEX = {"index_slots": int(TEST_CONF["maxHashSlotNum"]), "index_entries": int(TEST_CONF["maxIndexNum"])}
COUNT = 30_000


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_java_keeps_the_records_behind_a_repaired_place(version: str, ending: str, tmp_path: Path):
    java = JavaRocketmq(version)
    root = tmp_path / "broker" / "store"
    settings = StoreSettings(
        root_dir=str(root),
        segment_bytes=SEGMENT,
        queue_file_bytes_given=int(TEST_CONF["mappedFileSizeConsumeQueue"]),
        **INDEX,
    )
    with MessageStore.open(settings) as store:
        keys = (b"UNIQ_KEY\x01%032d\x02KEYS\x01k%d\x02" % (number, number) for number in range(COUNT))
        places = [store.append(Draft("TopicTest", n % 4, b"x" * 300, key)) for n, key in enumerate(keys)]
    damage(root, places[-100].physical_offset + 90, b"\xff")  # a body
    damage(root, places[-200].physical_offset + 2, b"\xff" * 4)  # a header
    damage(root, places[-400].physical_offset + 30, b"\xff" * 1500)  # four records
    with MessageStore.open(settings) as store:
        assert len(store.report.damages) == 3 and store.log_end == places[-1].end
    if ending == "killed":
        (root / "abort").write_text("1")
        (root / "checkpoint").unlink()

    with java.name_server(tmp_path / "names") as names, java.broker(tmp_path / "broker", names.address) as broker:
        broker.stop()
    with StoreFiles(root, **INDEX) as seen:
        report = verify_store(seen)
        assert report.ok, report.problems
        assert report.log_end == places[-1].end
        assert {queue.ends() for queue in seen.queues() if queue.topic == "TopicTest"} == {(0, COUNT // 4)}


def damage(root: Path, physical_offset: int, data: bytes) -> None:
    path = root / "commitlog" / f"{physical_offset // SEGMENT * SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset % SEGMENT)
        file.write(data)
