from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.properties import decode_properties, property_value

pieces = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "\x01", "\x02", "XTAGS", "TAGSX", "v", "é", "\0", "TAGS\x01a\x02", "KEYS\x01k\x02"]
)


@given(st.lists(pieces, max_size=12).map("".join).map(str.encode))
@example(b"TAGS\x01\x02TAGS\x01a")
@example(b"TAGS\x01a\x02TAGS\x01")
@example(b"UNIQ_KEY\x01u")
@example(b"TAGS\x01\xff\x02")
def test_the_quick_look_up_finds_what_the_decoder_finds(data):
    pairs = decode_properties(data)
    assert dispatch_properties(data) == (pairs.get("TAGS", ""), pairs.get("KEYS", ""), pairs.get("UNIQ_KEY"))


@given(st.lists(pieces, max_size=12).map("".join).map(str.encode), st.sampled_from(["TAGS", "KEYS", "X"]))
@example(b"TAGS\x01\x02TAGS\x01a", "TAGS")
@example(b"TAGS\x01a\x02TAGS\x01", "TAGS")
@example(b"TAGS\x01\xff\x02", "TAGS")
def test_one_value_is_found_as_the_decoder_finds_it(data, name):
    assert property_value(data, name) == property_value(memoryview(data), name) == decode_properties(data).get(name)
