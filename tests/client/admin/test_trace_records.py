"""Records of RocketMQ's message trace, as clients of 4.4 to 5.x write them."""

from twinlog.client.admin.trace_records import TraceRecord, decode_trace


def body(*records: str) -> bytes:
    return "".join(record.replace("|", "\x01") + "\x02" for record in records).encode()


PUB = "Pub|1700000000000|DefaultRegion|P|T|ID1|tag|k1 k2|127.0.0.1:10911|5|7|0|OFFSETID|true"


def test_a_send_is_read_with_and_without_the_offset_id():
    expected = TraceRecord(
        "Pub", "ID1", 1_700_000_000_000, "P", "T", "tag", "k1 k2", "127.0.0.1:10911", 5, 7, success=True
    )
    old = PUB.replace("|OFFSETID", "")
    assert decode_trace(body(PUB, old, f"{PUB}|127.0.0.1")) == [expected] * 3
    assert decode_trace(body(PUB.replace("|true", "|false")))[0].success is False


def test_a_reception_has_two_records_with_one_request_id():
    before = "SubBefore|1700000000001|DefaultRegion|G|REQ|ID1|2|k1"
    after = "SubAfter|REQ|ID1|9|true|k1|0|1700000000010|G"
    one, two = decode_trace(body(before, after))
    assert (one.kind, one.group, one.request_id, one.retries, one.time_ms) == (
        "SubBefore",
        "G",
        "REQ",
        2,
        1700000000001,
    )
    assert (two.kind, two.group, two.request_id, two.cost_ms, two.success) == ("SubAfter", "G", "REQ", 9, True)
    (short,) = decode_trace(body("SubAfter|REQ|ID1|9|false|k1"))
    assert (short.success, short.time_ms, short.group) == (False, 0, "")


def test_ends_of_transactions_and_recalls_are_read():
    end = "EndTransaction|1700000000001|R|P|T|ID1|tag|k|127.0.0.1:10911|2|TX|COMMIT_MESSAGE|false"
    recall = "Recall|1700000000001|R|P|T|ID1|true"
    one, two = decode_trace(body(end, recall))
    assert (one.transaction_state, one.topic) == ("COMMIT_MESSAGE", "T")
    assert (two.kind, two.success) == ("Recall", True)


def test_what_cannot_be_read_is_left_out():
    assert decode_trace(body("Pub|x", "Nonsense|1|2", PUB, "SubBefore|no number|||||")) == decode_trace(body(PUB))
    assert decode_trace(b"\xff\xfe") == []
