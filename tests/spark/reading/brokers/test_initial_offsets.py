import pytest

from twinlog.spark.reading.brokers.initial_offsets import initial_offsets_file
from twinlog.spark.reading.brokers.options import read_options

QUEUES = '{"T":{"b":[0,1]}}'
OFFSETS = '{"T":{"b":{"0":3,"1":-1}}}'


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"topic": "Orders"}, "ce0f2711e6aef63e.json"),
        ({"subscribePattern": "a.*", "startingTimestamp": "5"}, "3f9f6af1ad51355f.json"),
        ({"assign": QUEUES, "startingOffsets": OFFSETS}, "12147231a81f0536.json"),
    ],
)
def test_a_query_finds_the_file_that_an_earlier_version_wrote(given, name, tmp_path):
    options = read_options({"nameServer": "127.0.0.1:9876;h:1", **given}, streaming=True)
    found = initial_offsets_file(options, str(tmp_path))
    assert found is not None
    assert found.place.local == tmp_path / "_twinlog_initial_offsets" / name
