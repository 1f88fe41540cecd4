"""One rule for the size of a master's files: shown in its configuration, or the other log's, or an error."""

import pytest

from twinlog.replication.replica.join import Begin, LogRange, decide_join
from twinlog.replication.segment_bytes import SegmentBytesUnknown, common_segment_bytes, shown_segment_bytes


@pytest.mark.parametrize(
    "config, size",
    [
        ({"mappedFileSizeCommitLog": "1048576"}, 1 << 20),
        ({"mapedFileSizeCommitLog": "4096"}, 4096),
        ({"mappedFileSizeCommitLog": "4096", "mapedFileSizeCommitLog": "1024"}, 4096),
        ({"mappedFileSizeCommitLog": "", "mapedFileSizeCommitLog": "1024"}, 1024),
        ({"mappedFileSizeCommitLog": "large"}, None),
        ({"mappedFileSizeCommitLog": "0"}, None),
        ({"mappedFileSizeCommitLog": "-1"}, None),
        ({}, None),
    ],
)
def test_a_configuration_shows_a_valid_size_or_none(config, size):
    assert shown_segment_bytes(config) == size


def test_a_size_that_one_broker_does_not_show_is_the_others():
    assert common_segment_bytes(None, 4096) == common_segment_bytes(4096, 0) == 4096
    assert common_segment_bytes(1024, 4096) == 1024


def test_there_is_no_default_when_neither_broker_shows_its_size():
    with pytest.raises(SegmentBytesUnknown, match="mappedFileSizeCommitLog"):
        common_segment_bytes(None, 0)


def test_a_replica_joins_a_master_that_does_not_show_its_size_with_its_own():
    assert decide_join(LogRange(0, 0), LogRange(0, 2500), segment_bytes=1000) == Begin(2000)
