"""What a replica lacks is counted record by record, and estimated beyond the first of them."""

import pytest

from twinlog.client.admin.lag_estimate import RECORDS_ASKED_MAX, LagEstimate
from twinlog.wire.message import Message, encode_message

HOST = ("127.0.0.1", 1)
SIZE = len(encode_message(Message(topic="T", body=b"x", born_host=HOST, store_host=HOST)))
BEGIN = 7_000


def record(at: int) -> bytes:
    """The record at `at` was stored at the millisecond of the same number."""
    made = Message(topic="T", body=b"x", physical_offset=at, store_timestamp=at, born_host=HOST, store_host=HOST)
    return encode_message(made)


def count(end: int, readable_to: int) -> tuple[LagEstimate, list[int]]:
    missing, asked = LagEstimate(BEGIN, end), []
    while (at := missing.wanted) is not None:
        asked.append(at)
        missing.take(record(at) if at < readable_to else None)
    return missing, asked


@pytest.mark.parametrize("number", [1, 3, RECORDS_ASKED_MAX])
def test_a_few_missing_records_are_counted_one_by_one(number):
    end = BEGIN + number * SIZE
    missing, asked = count(end, end)
    assert asked == list(range(BEGIN, end, SIZE))
    assert (missing.messages, missing.is_exact, missing.oldest_ms) == (number, True, BEGIN)


def test_many_are_estimated_from_the_size_of_the_first():
    end = BEGIN + 5 * RECORDS_ASKED_MAX * SIZE
    missing, asked = count(end, end)
    assert len(asked) == RECORDS_ASKED_MAX
    assert (missing.messages, missing.is_exact) == (5 * RECORDS_ASKED_MAX, False)


def test_counting_ends_where_there_is_no_record_and_the_rest_is_estimated():
    missing, asked = count(BEGIN + 10 * SIZE, BEGIN + 2 * SIZE)
    assert len(asked) == 3
    assert (missing.messages, missing.is_exact, missing.oldest_ms) == (10, False, BEGIN)


def test_without_a_first_record_the_number_is_unknown():
    missing, asked = count(BEGIN + SIZE, BEGIN)
    assert asked == [BEGIN]
    assert (missing.messages, missing.is_exact, missing.oldest_ms) == (None, False, None)
