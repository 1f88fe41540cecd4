from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.properties import decode_properties

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
