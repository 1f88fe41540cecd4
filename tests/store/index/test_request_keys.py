"""The keys of requests are hashed together as each would be hashed alone."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.index.request_keys import hash_batches, hash_requests
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.scan.key_hash import hash_key
from twinlog.wire.values.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

requests = st.builds(
    lambda topic, keys, uniq_key, flags: DispatchRequest(topic, 0, 0, 1, 0, 0, 0, keys, uniq_key, flags),
    st.sampled_from(["T", "Other"]),
    st.sampled_from(["", "", "k1", "k1 k2", " k1  k2 ", " ", "schlüssel 中", "k" * 40]),
    st.sampled_from([None, "7F0000010001", "7F0000010002", "short", "ü"]),
    st.sampled_from([0, 0, 1, 4, 8, 12, 13]),
)


def keys_of(request: DispatchRequest) -> list[str]:
    if request.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    return [key for key in (request.uniq_key, *request.keys.split(" ")) if key]


@given(st.lists(requests, min_size=1, max_size=20))
def test_every_key_of_every_record_is_hashed_in_order(given_requests):
    hashes, rows = hash_requests(given_requests)
    places = list(range(len(given_requests)))[rows] if isinstance(rows, slice) else rows.tolist()
    expected = [
        (hash_key(request.topic, key), row) for row, request in enumerate(given_requests) for key in keys_of(request)
    ]
    assert list(zip(hashes.tolist(), places, strict=True)) == expected


texts = [
    b"",
    b"KEYS\x01k1\x02UNIQ_KEY\x01u1\x02",
    b"KEYS\x01k2\x02UNIQ_KEY\x01u2\x02",
    b"UNIQ_KEY\x01u1\x02TAGS\x01a\x02",
    b"TAGS\x01a\x02",
]
others = [
    b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02",
    "KEYS\x01ä\x02UNIQ_KEY\x01u1\x02".encode(),
    b"UNIQ_KEY\x01u1\x02TAGS\x01\x02b",
]
batches = st.builds(
    lambda topic, given: BatchRequests(topic, 0, 0, range(len(given)), [1] * len(given), [0] * len(given), given, 0, 0),
    st.sampled_from(["T", "Other"]),
    st.lists(st.sampled_from([*texts, *texts, *texts, *others]), min_size=1, max_size=4),
)


@given(st.lists(batches, min_size=1, max_size=4))
def test_the_keys_of_batches_are_those_of_their_requests(given_batches):
    found = hash_batches(given_batches)
    if found is None:
        assert any(text in others for batch in given_batches for text in batch.properties)
        return
    requests = [request for batch in given_batches for request in batch]
    expected = [(hash_key(one.topic, key), row) for row, one in enumerate(requests) for key in keys_of(one)]
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected
