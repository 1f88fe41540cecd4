"""What a replica holds, and the changes it is sent, as text and JSON."""

import pytest

from twinlog.metadata.tables import open_tables
from twinlog.replication.master.metadata_changes import encode_changes
from twinlog.replication.metadata.delta import Held, decode_changes, decode_delta
from twinlog.wire.errors import BodyError


@pytest.mark.parametrize("text", ["", "x", "e:", "e:-1", "e:1x"])
def test_a_text_without_a_valid_revision_is_refused(text):
    with pytest.raises(BodyError, match="revision"):
        encode_changes(open_tables(None, 1), {"topics": text})


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"topics":{"epoch":1}}', b"\xff", b'{"topics":' + b"[" * 100_000])
def test_invalid_changes_are_refused(body):
    with pytest.raises(BodyError):
        decode_delta("topics", decode_changes(body)["topics"])


def test_what_a_replica_holds_reads_back_from_its_text():
    assert str(Held("e", 4, whole=True)) == "e:4:whole" and str(Held("e", 4)) == "e:4"
