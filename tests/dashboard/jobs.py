"""Directories as data jobs leave them."""

from datetime import UTC, datetime

import pyarrow as pa
from pyarrow import parquet as pq

from twinlog.spark.jobs.archive.layout import ArchiveCommit, ArchiveHeader, TopicTotals, save_commit, save_header
from twinlog.spark.jobs.sync_status import BrokerState, SyncStatus, save_status

NOW = 1_900_000_000_000  # later than any file
SEEN = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def make_archive(home):
    home.mkdir(parents=True)
    save_header(home, ArchiveHeader("parquet", "brokers", ("topic",)))
    save_commit(home, ArchiveCommit(12, "q", "r", (), {"Orders": TopicTotals(1_500, 2, 4_096)}, 13))
    for folder, numbers in (("offsets", (12, 13)), ("commits", (12,))):
        (home / "_checkpoint" / folder).mkdir(parents=True)
        for number in numbers:
            (home / "_checkpoint" / folder / str(number)).touch()


def make_sync(home, **more):
    broker = BrokerState(broker="broker-a", address="m:1", replica_end=750, master_end=1_000, lag_bytes=250)
    status = SyncStatus(tick=7, began_ms=NOW - 5_000, written_ms=NOW - 4_000, every_ms=5_000, brokers=[broker], **more)
    (home / "_status").mkdir(parents=True)
    save_status(home, status)
    changes = home / "_history" / "changes"
    changes.mkdir(parents=True)
    row = {"seenAt": SEEN, "broker": "broker-a", "kind": "topics", "key": "Orders", "oldValue": None, "newValue": "{}"}
    pq.write_table(pa.Table.from_pylist([row]), changes / "one.parquet")


def make_audit(home):
    home.mkdir(parents=True)
    row = {"auditId": "a", "auditedAt": SEEN, "pair": "p", "master": "m:1", "replica": "r:1", "kind": "result"}
    rows = [{**row, "what": "equal", "size": 4096}, {**row, "kind": "note", "what": "x", "size": 1}]
    pq.write_table(pa.Table.from_pylist(rows), home / "part-0.parquet")
