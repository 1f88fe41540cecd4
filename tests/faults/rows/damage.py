"""Bytes that a crash or a disk has damaged: torn tails and flipped bits. For Java, what it makes of them is counted."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.group import JAVA, TWINLOG
from tests.interop.java_rocketmq import TEST_CONF, JavaRocketmq
from tests.interop.replica_pair import pull_everything
from tests.store.store_at import NOW, draft, kill

from twinlog.metadata.tables import open_tables
from twinlog.settings.store import StoreSettings
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.offline.verify import verify_store
from twinlog.store.queues.read import ReadStatus
from twinlog.store.repair import log_source, repair_store
from twinlog.wire.bodies import TopicConfig
from twinlog.wire.message import Message, decode_messages

SEGMENT = int(TEST_CONF["mappedFileSizeCommitLog"])
INDEX = {"index_slots": 512, "index_entries": 2048}
INDEX_ENTRIES_AT = 40 + 4 * INDEX["index_slots"]
MESSAGES, QUEUES = 120, 2
JAVA_FLIPS, JAVA_CUTS = 12, 8  # each needs a start of its own
OFFSETS = "config/consumerOffset.json"
Served = dict[tuple[int, int], tuple[bytes, str]]


def settings_at(root: Path, segment: int = 16 * 1024) -> StoreSettings:
    sizes = {"segment_bytes": segment, "queue_file_bytes_given": 60_000}
    return StoreSettings(root_dir=str(root), **sizes, **INDEX)


def torn_tails(home: Path, seed: int, side: str = TWINLOG, step: int = 1, whole: bool = True) -> str:
    """The last segment ends at some byte of its last three records, as a hole or as the end of the file.

    Every whole record is kept and nothing else. Seen to fail when recovery does not look for the end of the properties
    (`_without_torn_properties`): a record whose checksum is cut off survives, as records without one are valid.
    """
    root, segment = home / "store", SEGMENT if side == JAVA else 64 * 1024
    store = MessageStore.open(settings_at(root, segment), clock_ms=lambda: NOW)
    places = [store.append(draft(number)) for number in range(20)]
    store.dispatch_pending()
    store.flush()
    store.flush_queues()
    kill(store)
    _save_tables(root)
    tail = places[-3].physical_offset
    cuts = range(tail, places[-1].end, step)
    if side == JAVA:
        cuts = random.Random(seed).sample(cuts, JAVA_CUTS)
    seen: Counter[str] = Counter()
    for cut in cuts:
        kept = sum(place.end <= cut for place in places)
        for shortened in (False, True) if whole and side == TWINLOG else (False,):
            seen[_open_torn(home, root, cut, places[kept].physical_offset, side, shortened=shortened)] += 1
    assert side == JAVA or set(seen) == {"right"}, seen
    return ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))


def _open_torn(home: Path, root: Path, cut: int, expected: int, side: str, *, shortened: bool) -> str:
    copy = home / "copy" / "store"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    with (copy / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(cut)
        if not shortened:
            file.truncate(SEGMENT if side == JAVA else 64 * 1024)
    if side == TWINLOG:
        with MessageStore.open(settings_at(copy, 64 * 1024), clock_ms=lambda: NOW) as store:
            end = store.log_end
        assert end == expected, f"cut at {cut}: the log ends at {end}, whole records end at {expected}"
        return "right"
    java = JavaRocketmq("5.5.0")
    try:
        with java.name_server(home / "names") as names, java.broker(home / "copy", names.address) as broker:
            served = len(pull_everything(broker.address, "TopicA", QUEUES))
    except AssertionError:
        return "not started"
    whole = sum(expected > offset for offset in _starts(root))
    return "right" if served == whole else "with a torn record served" if served > whole else "with whole records lost"


def _starts(root: Path) -> list[int]:
    with StoreFiles(root) as seen:
        queue = next(one for one in seen.queues() if one.topic == "TopicA")
        return [int(unit) for _, units in queue.chunks() for unit in units["physical_offset"]]


def bit_flips(home: Path, seed: int, side: str = TWINLOG, flips: int = 1000) -> str:
    """One bit of a log, queue, index, checkpoint or metadata file flips while the broker is stopped.

    It is found by verification, recovery or load; no message is served that was not sent so; all others are served; and
    what was lost comes back from the twin. Seen to fail with the checksum of records switched off (flips of properties
    are served), without queue offsets in `next_of_queue`, and without `wrong_chains` in the verification.
    """
    chance = random.Random(seed)
    if side == JAVA:
        return _java_flips(home, chance)
    root, twin = home / "store", home / "twin"
    _fill(root)
    shutil.copytree(root, twin)
    sent, places = _served(root), _places(root)
    seen: Counter[str] = Counter()
    for number in range(flips):
        name = chance.choice(list(places))
        path, position = chance.choice(places[name])
        bit = chance.randrange(8)
        seen[_flip(home, root, twin, (path, position, bit), sent, f"seed {seed}, flip {number}: {name}")] += 1
        seen[name] += 1
    return ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))


def _flip(home: Path, root: Path, twin: Path, place: tuple[str, int, int], sent: Served, about: str) -> str:
    path, position, bit = place
    about = f"{about} {path} byte {position} bit {bit}"
    copy = home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    if path.startswith(("commitlog", "consumequeue")):  # while the broker runs: nothing but the read can find it
        with MessageStore.open(settings_at(copy), clock_ms=lambda: NOW) as store:
            _flip_bit(copy / path, position, bit)
            served = {_key(message): _content(message) for message in _read_all(store)}
            _flip_bit(copy / path, position, bit)
        assert served.items() <= sent.items(), f"{about}: served {served.items() - sent.items()} while it ran"
        assert len(sent) - len(served) <= 1, f"{about}: {len(sent) - len(served)} messages were not served"
    _flip_bit(copy / path, position, bit)
    with StoreFiles(copy, **INDEX) as files:
        problems = verify_store(files).problem_count
    if path.startswith("config/"):
        assert problems, f"{about}: not found"
        tables = open_tables(copy / "config", NOW)
        assert tables.load(), about
        assert tables.offsets.get("G", "T", 0) == 5, about  # the backup's
        return "found by its checksum"
    served = _served(copy)
    wrong = {key for key, message in served.items() if sent.get(key) != message}
    assert not wrong, f"{about}: served another message at {wrong}"
    lost = sent.keys() - served.keys()
    assert len(lost) <= 1, f"{about}: {len(lost)} messages are gone"
    with (
        StoreFiles(twin, **INDEX) as other,
        MessageStore.open(settings_at(copy), clock_ms=lambda: NOW) as store,
    ):
        found = problems or store.report.damages or store.report.units_repaired
        report = repair_store(store, log_source(other.commit_log))
        assert not report.missing, f"{about}: {report}"
    assert found or report.damaged or _is_one_second(place), f"{about}: not found"
    assert _served(copy) == sent and _count_by_key(copy) == MESSAGES, f"{about}: not repaired"
    with StoreFiles(copy, **INDEX) as files:
        after = verify_store(files)
        assert after.ok, f"{about}: {after.problems}"
    return "found" if found else "harmless"


def _is_one_second(place: tuple[str, int, int]) -> bool:
    """Whether a time in the index changed by one second, which is not compared: it may have been rounded."""
    path, position, bit = place
    return path.startswith("index/") and (position - INDEX_ENTRIES_AT) % 20 == 15 and bit == 0


def _java_flips(home: Path, chance: random.Random) -> str:
    """Bits of records flip in a store that Java 5.5.0 then opens, and a consumer reads."""
    java, seen, root = JavaRocketmq("5.5.0"), Counter[str](), home / "store"
    _fill(root, SEGMENT)
    sent = _served(root, SEGMENT)
    log = _places(root, SEGMENT)["log"]
    with java.name_server(home / "names") as names:
        for number in range(JAVA_FLIPS):
            place = home / f"copy-{number}"
            shutil.copytree(root, place / "store")
            path, position = chance.choice(log)
            _flip_bit(place / "store" / path, position, chance.randrange(8))
            with java.broker(place, names.address) as broker:
                served = {_key(one): _content(one) for one in pull_everything(broker.address, "TopicA", QUEUES)}
            shutil.rmtree(place)
            wrong = sum(sent.get(key) != message for key, message in served.items())
            seen["flips"] += 1
            seen["damaged messages served"] += wrong
            seen["other messages lost"] += max(0, len(sent) - len(served) - (not wrong))
    return ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))


def _flip_bit(path: Path, position: int, bit: int) -> None:
    """As a disk does it: the file's times stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _key(message: Message) -> tuple[int, int]:
    return message.queue_id, message.queue_offset


def _content(message: Message) -> tuple[bytes, str]:
    return message.body, str(sorted(message.properties.items()))


def _fill(root: Path, segment: int = 16 * 1024) -> None:
    with MessageStore.open(settings_at(root, segment), clock_ms=lambda: NOW) as store:
        for number in range(MESSAGES):
            assert store.append(_even_draft(number)).size == 256
        store.dispatch_pending()
    _save_tables(root)


def _save_tables(root: Path) -> None:
    tables = open_tables(root / "config", NOW)
    tables.topics.put("TopicA", TopicConfig(topic_name="TopicA", read_queue_nums=QUEUES, write_queue_nums=QUEUES), NOW)
    for offset in (5, 25):
        tables.offsets.commit("G", "T", 0, offset, NOW)
        tables.save()


def _even_draft(number: int) -> Draft:
    """Of a record of 256 bytes, so that a flipped bit in a unit of a queue leads from one record to another."""
    one = draft(number, queue_id=number % QUEUES)
    one.properties += b"P\x01%b\x02" % (b"p" * (136 - len(one.body) - len(one.properties)))
    return one


def _places(root: Path, segment: int = 16 * 1024) -> dict[str, list[tuple[str, int]]]:
    """Bytes that mean something, by kind of file."""
    with StoreFiles(root, **INDEX) as files:
        units = [(f"consumequeue/{one.topic}/{one.queue_id}", one.ends()[1]) for one in files.queues()]
        index = [(one.path.name, one.count) for one in files.index_files()]
    with MessageStore.open(settings_at(root, segment), clock_ms=lambda: NOW) as store:
        starts = [store.unit("TopicA", n % QUEUES, n // QUEUES) for n in range(MESSAGES)]
    log = [
        (f"commitlog/{at - at % segment:020d}", (at + byte) % segment)
        for at, size, _ in starts
        for byte in range(0, size, 3)
    ]
    entries = INDEX_ENTRIES_AT
    return {
        "log": log,
        "queues": [(f"{path}/{0:020d}", byte) for path, count in units for byte in range(20 * count)],
        "index": [(f"index/{name}", byte) for name, n in index for byte in range(entries + 20, entries + 20 * n)],
        "checkpoint": [("checkpoint", byte) for byte in range(40)],
        "JSON": [(OFFSETS, byte) for byte in range((root / OFFSETS).stat().st_size)],
    }


def _served(root: Path, segment: int = 16 * 1024) -> Served:
    """What consumers of the store get, by queue and offset, and by key."""
    served: Served = {}
    with MessageStore.open(settings_at(root, segment), clock_ms=lambda: NOW) as store:
        for message in _read_all(store):
            served[_key(message)] = _content(message)
        for number in range(MESSAGES):
            for record in store.query("TopicA", f"key-{number}", 4, 0, 2**62).buffers:
                (message,) = decode_messages(record)
                assert message.body == b"body %d" % number
    return served


def _count_by_key(root: Path) -> int:
    with MessageStore.open(settings_at(root), clock_ms=lambda: NOW) as store:
        return sum(len(store.query("TopicA", f"key-{n}", 4, 0, 2**62).buffers) for n in range(MESSAGES))


def _read_all(store: MessageStore) -> Iterator[Message]:
    for queue_id in range(QUEUES):
        at = 0
        while at < store.max_offset("TopicA", queue_id):
            result = store.read("TopicA", queue_id, at, log=store.log_in_memory())
            assert result.next_offset > at, result
            if result.status is ReadStatus.FOUND:
                for message in (one for buffer in result.buffers for one in decode_messages(buffer)):
                    assert message.queue_id == queue_id and message.queue_offset >= at, f"another message at {at}"
                    at = message.queue_offset + 1
                    yield message
            at = result.next_offset
