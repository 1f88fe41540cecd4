"""Appending: the fast path writes what the plain codec defines, and limits are statuses."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.append import Draft, PutStatus, append, append_drafts
from twinlog.store.log.appender import Appender
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.page_cache import read_ahead
from twinlog.store.scan.replay import requests_of
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import StopReason
from twinlog.wire.message import Message, decode_message, encode_message
from twinlog.wire.properties import decode_properties, encode_properties

NOW = 1_700_000_000_000


def open_log(path, size=1 << 16):
    log = CommitLog([path / "commitlog"], size)
    log.load()
    return log


def appender(log, **options):
    options = {
        "store_host": ("10.0.0.1", 10911),
        "clock_ms": lambda: NOW,
        "next_offset": lambda topic, queue_id: 5,
    } | options
    return Appender(log, delay_levels=DelayLevels(), **options)


def record_of(log, stored):
    return bytes(log.slice(stored.physical_offset, stored.size))


text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
hosts = st.tuples(st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)), st.integers(0, 65535))
int32 = st.integers(-(2**31), 2**31 - 1)
drafts = st.builds(
    Draft,
    topic=st.from_regex(r"[%A-Za-z0-9_-]{1,127}", fullmatch=True),
    queue_id=st.integers(0, 100),
    body=st.binary(max_size=300),
    properties=st.dictionaries(st.one_of(text, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"])), text, max_size=4).map(
        encode_properties
    ),
    born_host=hosts,
    store_host=hosts,
    born_timestamp=st.integers(0, 2**62),
    flag=int32,
    sys_flag=st.sampled_from([0, 1, 0x301, 0x4, 0x8, 0xC, 0x30]),
    reconsume_times=st.integers(0, 100),
    prepared_transaction_offset=st.integers(0, 2**62),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draft=drafts)
def test_the_fast_path_writes_what_the_plain_codec_defines(tmp_path_factory, draft):
    log = open_log(tmp_path_factory.mktemp("log"))
    fast = appender(log)
    stored = append(fast, draft)
    assert stored.ok
    plain = Message(
        topic=draft.topic,
        body=draft.body,
        queue_id=draft.queue_id,
        flag=draft.flag,
        queue_offset=0 if draft.sys_flag & 0x4 else 5,
        physical_offset=0,
        sys_flag=draft.sys_flag,
        born_timestamp=draft.born_timestamp,
        born_host=draft.born_host,
        store_timestamp=NOW,
        store_host=draft.store_host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
        properties=decode_properties(draft.properties),
    )
    assert record_of(log, stored) == encode_message(plain)
    (batch,) = scan(log.segments[0].map, 0, 1 << 16, 0)
    assert requests_of(batch, DelayLevels()) == fast.pending
    log.close()


def test_a_long_retry_topic_makes_a_v2_record_and_other_long_topics_are_refused(tmp_path):
    log = open_log(tmp_path)
    retry = "%RETRY%" + "g" * 130
    stored = append(appender(log), Draft(retry, 0, b"x"))
    assert decode_message(record_of(log, stored)).version == 2
    for bad in ("t" * 128, "", "../up", "a/b", "%RETRY%" + "g" * 300, "\ud800"):
        assert append(appender(log), Draft(bad, 0, b"x")).status is PutStatus.MESSAGE_ILLEGAL
    log.close()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"body": b"x" * 1001}, PutStatus.MESSAGE_ILLEGAL),
        ({"properties": b"p" * 32768}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"flag": 2**31}, PutStatus.MESSAGE_ILLEGAL),
        ({"queue_id": 2**40}, PutStatus.MESSAGE_ILLEGAL),
        ({"born_host": ("not an address", 1)}, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_a_message_over_a_limit_gets_a_status_and_leaves_no_byte(tmp_path, change, status):
    log = open_log(tmp_path)
    fast = appender(log, message_size_max=1000)
    draft = Draft(**{"topic": "T", "queue_id": 0, "body": b"x"} | change)
    assert append(fast, draft).status is status
    assert append_drafts(fast, [Draft("T", 0, b"ok"), draft]).status is status
    assert log.log_end == 0 and not fast.pending
    assert not log.segments or not any(log.segments[0].map[:4096])
    assert append(fast, Draft("T", 0, b"ok")).ok
    log.close()


@pytest.mark.parametrize("length", [0, 4095, 4096, 32767])
def test_properties_up_to_the_limit_are_stored_whole(tmp_path, length):
    log = open_log(tmp_path)
    properties = (b"name\x01" + b"v" * 32767)[:length]
    stored = append(appender(log), Draft("T", 0, b"x", properties))
    assert record_of(log, stored).endswith(length.to_bytes(2, "big") + properties)
    assert decode_message(record_of(log, stored)).store_size == stored.size
    log.close()


def test_a_record_that_does_not_fit_goes_to_the_next_file_behind_a_blank_record(tmp_path):
    log = open_log(tmp_path, 1024)
    fast = appender(log)
    offsets = [append(fast, Draft("T", 0, b"x" * 200)).physical_offset for _ in range(5)]
    size = 91 + 1 + 200
    assert offsets == [0, size, 2 * size, 1024, 1024 + size]
    (batch,) = scan(log.segments[0].map, 0, 1024, 0)
    assert batch.stop.reason is StopReason.BLANK and batch.stop.position == 3 * size
    assert [one.queue_offset for one in fast.pending] == [5, 6, 7, 8, 9]
    log.close()


def test_eight_bytes_always_remain_for_the_blank_record(tmp_path):
    log = open_log(tmp_path, 1024)
    fast = appender(log)
    body = b"x" * (1024 - 8 - 92)
    assert append(fast, Draft("T", 0, body)).size == 1016
    assert append(fast, Draft("T", 0, b"next")).physical_offset == 1024
    assert bytes(log.segments[0].map[1016:1024]) == bytes.fromhex("00000008cbd43194")
    assert append(fast, Draft("T", 0, body + b"y")).status is PutStatus.MESSAGE_ILLEGAL
    log.close()


def test_a_batch_never_spans_files(tmp_path):
    log = open_log(tmp_path, 1024)
    fast = appender(log)
    append(fast, Draft("T", 0, b"x" * 300))
    stored = append_drafts(fast, [Draft("T", 0, b"x" * 150) for _ in range(3)])
    assert stored.physical_offset == 1024 and stored.queue_offset == 6
    assert stored.physical_offsets == (1024, 1024 + 242, 1024 + 2 * 242)
    assert stored.end == log.log_end == 1024 + stored.size
    assert append_drafts(fast, [Draft("T", 0, b"x" * 300) for _ in range(4)]).status is PutStatus.MESSAGE_ILLEGAL
    assert append_drafts(fast, []).status is PutStatus.MESSAGE_ILLEGAL
    log.close()


def test_store_timestamps_never_go_back(tmp_path):
    log = open_log(tmp_path)
    times = iter([NOW, NOW - 5000, NOW + 1])
    fast = appender(log, clock_ms=lambda: next(times))
    assert [append(fast, Draft("T", 0, b"")).store_timestamp for _ in range(3)] == [NOW, NOW, NOW + 1]
    log.close()


def test_a_record_checksum_covers_everything_before_it(tmp_path):
    log = open_log(tmp_path)
    fast = appender(log, append_crc=True)
    stored = append(fast, Draft("T", 0, b"body", b"TAGS\x01a"))
    message = decode_message(record_of(log, stored))
    assert message.properties["TAGS"] == "a" and len(message.properties["__CRC32#"]) == 10
    (batch,) = scan(log.segments[0].map, 0, 1 << 16, 0, check_record_crc=True)
    assert len(batch) == 1
    log.segments[0].map[40] ^= 1
    (batch,) = scan(log.segments[0].map, 0, 1 << 16, 0, check_record_crc=True)
    assert batch.stop.reason is StopReason.RECORD_CRC
    log.close()


def test_an_inner_batch_takes_as_many_queue_offsets_as_it_has_messages(tmp_path):
    log = open_log(tmp_path)
    fast = appender(log)
    append(fast, Draft("T", 0, b"elements", b"UNIQ_KEY\x01u\x02", inner_count=3))
    after = append(fast, Draft("T", 0, b"single"))
    first = decode_message(record_of(log, append(fast, Draft("T", 1, b""))), 0)
    assert first.queue_offset == 5
    batch = fast.pending[0]
    assert (batch.queue_offset, batch.batch_size, after.queue_offset) == (5, 3, 8)
    assert batch.properties["INNER_NUM"] == "3" and batch.properties["INNER_BASE"] == "5"
    assert batch.sys_flag & 0xC0 == 0xC0
    log.close()


def test_a_parked_delay_message_is_queued_by_its_delivery_time(tmp_path):
    log = open_log(tmp_path)
    fast = appender(log)
    for level in (b"1", b"3", b"99", b"x"):
        append(fast, Draft("SCHEDULE_TOPIC_XXXX", 0, b"", b"DELAY\x01" + level + b"\x02TAGS\x01a\x02"))
    codes = [one.tags_code for one in fast.pending]
    assert codes == [NOW + 1000, NOW + 10_000, NOW + 7_200_000, 97]
    (batch,) = scan(log.segments[0].map, 0, 1 << 16, 0)
    assert [one.tags_code for one in requests_of(batch, DelayLevels())] == codes
    log.close()


def test_a_full_cache_of_cursors_forgets_no_offset_of_pending_records(tmp_path, monkeypatch):
    """The consume queues get records later, so until then only a cursor has the offset of the next one."""
    monkeypatch.setattr("twinlog.store.log.appender._CACHED_MAX", 2)
    log = open_log(tmp_path)
    target = appender(log)
    stored = [append(target, Draft("T", queue_id, b"x")).queue_offset for queue_id in (0, 1, 2, 0, 1, 2, 0)]
    assert stored == [5, 5, 5, 6, 6, 6, 7]
    target.pending.clear()  # as if they were dispatched
    assert append(target, Draft("T", 3, b"x")).queue_offset == 5
    assert len(target.queues) == 1
    log.close()


def test_what_follows_the_log_is_read_before_records_need_it(tmp_path, monkeypatch):
    """In steps, never beyond the segment, and again after a cut; the bytes are zeros as before."""
    monkeypatch.setattr("twinlog.store.log.commit_log._AHEAD_BYTES", 8192)
    log = open_log(tmp_path, size=1 << 15)
    asked: list[tuple[int, int]] = []
    in_background = log._in_background

    def note(function, *arguments):
        if function is read_ahead:
            asked.append(arguments[1:])
        return in_background(function, *arguments)

    monkeypatch.setattr(log, "_in_background", note)
    target = appender(log)
    for _ in range(5):
        target.make_ready(100)
    assert asked == [(0, 8192)]
    log.log_end = 5000
    target.make_ready(100)
    assert asked == [(0, 8192), (8192, 8192)]
    log.log_end = 20_000
    target.make_ready(100)
    log.log_end = 30_000
    target.make_ready(100)
    assert asked[2:] == [(20_000, 8192), (30_000, 2768)]
    log.truncate(1000)
    target.forget()
    target.make_ready(100)
    assert asked[4:] == [(1000, 8192)]
    log.close()
