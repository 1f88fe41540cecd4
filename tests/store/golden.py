"""The golden stores of a real Java broker, as dispatch requests and as unpacked directories."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.file_ops import FileOps

VECTORS = Path(__file__).parent.parent / "vectors" / "store"
ARCHIVES = {"normal": "manifest.json", "crash": "manifest-crash.json", "cqext": "manifest-cqext.json"}


class NoFlush(FileOps):
    """Real files, but nobody waits for the disk: for tests that look at what is written, not at what is durable."""

    def flush(self, descriptor: int) -> None:
        pass

    flush_filesystem = flush


def manifest(name: str) -> dict:
    return json.loads((VECTORS / ARCHIVES[name]).read_text())


def unpack(name: str, directory: Path) -> Path:
    with tarfile.open(VECTORS / f"store-{name}.tar.gz") as archive:
        members = [member for member in archive if member.name != "timerwheel"]
        archive.extractall(directory, members=members, filter="data")
    return directory


def requests(name: str) -> list[DispatchRequest]:
    """What Java's own dispatcher made of each record of the archive."""
    return [
        DispatchRequest(
            topic=record["topic"],
            queue_id=record["queueId"],
            physical_offset=record["offset"],
            size=record["totalSize"],
            tags_code=record["dispatch"]["tagsCode"],
            store_timestamp=record["storeTimestamp"],
            queue_offset=record["dispatch"]["msgBaseOffset"],
            keys=record["dispatch"].get("keys", ""),
            uniq_key=record["dispatch"].get("uniqKey"),
            sys_flag=record["sysFlag"],
            batch_size=record["dispatch"]["batchSize"],
        )
        for record in manifest(name)["commitLog"]["records"]
        if "dispatch" in record
    ]


def topic_kind(topic: str) -> str:
    return "BatchCQ" if topic == "TopicBatchCQ" else "SimpleCQ"


def same_files(made: Path, golden: Path, pattern: str) -> None:
    """Every file matching `pattern` has the same name and bytes on both sides."""
    names = sorted(str(path.relative_to(golden)) for path in golden.glob(pattern) if path.is_file())
    assert names
    assert sorted(str(path.relative_to(made)) for path in made.glob(pattern) if path.is_file()) == names
    for name in names:
        assert (made / name).read_bytes() == (golden / name).read_bytes(), name
