"""Stores for audits: a master with several segments and metadata, its twin, and ways to spoil the twin."""

import json
import zlib
from pathlib import Path

from tests.store.store_at import NOW, SEGMENT, fill, open_store

from twinlog.metadata.tables import open_tables
from twinlog.spark.jobs.audit.compare import run_task
from twinlog.spark.jobs.audit.findings import Finding
from twinlog.spark.jobs.audit.job import AuditJob, inspect_pair, plan_tasks
from twinlog.spark.jobs.endpoint import parse_endpoint
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.message import decode_message

MESSAGES = 300
BODY_AT = 88


def make_master(home: Path, count: int = MESSAGES) -> list[int]:
    """A stopped store with four segments; the places of its records."""
    with open_store(home) as store:
        places = [place.physical_offset for place in fill(store, count)]
    tables = open_tables(home / "store" / "config", NOW)
    tables.topics.put("TopicA", TopicConfig(topic_name="TopicA", read_queue_nums=2, write_queue_nums=2), NOW)
    tables.groups.put("GroupA", SubscriptionGroupConfig(group_name="GroupA"), NOW)
    tables.offsets.commit("GroupA", "TopicA", 0, 100, NOW)
    tables.offsets.commit("GroupA", "TopicA", 1, 90, NOW)
    tables.delay_offsets.update(3, 17, NOW)
    tables.save()
    return places


def edit_json(home: Path, name: str, change) -> None:
    path = home / "store" / "config" / name
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def log_bytes(home: Path, offset: int, size: int) -> bytes:
    path = home / "store" / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    return path.read_bytes()[offset % SEGMENT :][:size]


def record(home: Path, offset: int) -> bytes:
    return log_bytes(home, offset, int.from_bytes(log_bytes(home, offset, 4), "big"))


def with_body(old: bytes, body: bytes) -> bytes:
    """The same record with another body of the same length, and the CRC that belongs to it."""
    assert len(body) == len(decode_message(old).body)
    crc = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    return old[:8] + crc + old[12:BODY_AT] + body + old[BODY_AT + len(body) :]


def compare(master: Path, replica: Path, **more) -> list[Finding]:
    """All findings of a pair, in this process and without Spark."""
    more = {"range_bytes": 5000, "settle_s": 0.0, **more}
    sides = parse_endpoint(str(master / "store")), parse_endpoint(str(replica / "store"))
    return compare_sides(*sides, **more)


def compare_sides(master, replica, **more) -> list[Finding]:
    job = AuditJob(pairs=((master, replica),), **more)
    plan = inspect_pair("pair", master, replica, job)
    found = [*plan.findings]
    for task in plan_tasks(plan, 0, job):
        found += run_task(plan, task, check_crc=job.check_crc)
    return list(dict.fromkeys(one for one in found if one.kind != "compared"))


def append_more(home: Path, count: int, start: int = MESSAGES) -> list[int]:
    with open_store(home) as store:
        return [place.physical_offset for place in fill(store, count, start=start)]
