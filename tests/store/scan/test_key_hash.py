from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.scan.key_hash import hash_key, hash_keys, hash_prefix
from twinlog.wire.java_text import java_hash

text = st.one_of(st.text(st.characters(codec="ascii"), max_size=70), st.text(max_size=70))


def plain_hash(topic: str, key: str) -> int:
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value


@given(st.lists(st.tuples(st.text(max_size=10), text)))
def test_many_keys_hash_as_one_at_a_time(pairs):
    hashes = hash_keys([hash_prefix(topic) for topic, _ in pairs], [key for _, key in pairs])
    assert hashes.tolist() == [plain_hash(topic, key) for topic, key in pairs]


@given(st.text(max_size=10), st.integers(1, 60), st.data())
def test_message_ids_of_one_length_hash_as_one_at_a_time(topic, length, data):
    keys = data.draw(st.lists(st.text("0123456789ABCDEF", min_size=length, max_size=length), min_size=1))
    assert hash_keys(hash_prefix(topic), keys).tolist() == [plain_hash(topic, key) for key in keys]


def test_the_smallest_int_has_no_absolute_value_and_becomes_zero():
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert hash_keys(0, ["polygenelubricants"]).tolist() == [0]
    assert hash_key("TopicA", "key-1") == 1577233006  # from a Java index file
