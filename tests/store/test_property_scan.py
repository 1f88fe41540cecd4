from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.store.property_scan import dispatch_properties, dispatch_tags, value_places
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
    assert dispatch_tags(data) == pairs.get("TAGS", "")


@given(st.lists(pieces, max_size=12).map("".join).map(str.encode))
@example(b"TAGS\x01a\x02KEYS\x01k")
def test_the_places_of_values_are_those_that_the_decoder_reads(data):
    places, pairs = value_places(data), decode_properties(data)
    if places is not None:
        assert {name.decode(): data[place].decode() for name, place in places.items()} == pairs
    else:
        assert len(pairs) < len(data.removesuffix(b"\x02").split(b"\x02"))


@given(st.lists(pieces, max_size=12).map("".join).map(str.encode), st.sampled_from(["TAGS", "KEYS", "X"]))
@example(b"TAGS\x01\x02TAGS\x01a", "TAGS")
@example(b"TAGS\x01a\x02TAGS\x01", "TAGS")
@example(b"TAGS\x01\xff\x02", "TAGS")
def test_one_value_is_found_as_the_decoder_finds_it(data, name):
    assert property_value(data, name) == property_value(memoryview(data), name) == decode_properties(data).get(name)
