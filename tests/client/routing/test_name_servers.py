import pytest

from twinlog.client.errors import BadArgument
from twinlog.client.routing.name_servers import parse_name_servers


@pytest.mark.parametrize("text", ["", " ; ", "host", "host:port", "host:0", "host:99999", ":9876"])
def test_an_invalid_address_is_refused_at_once(text):
    with pytest.raises(BadArgument):
        parse_name_servers(text)


def test_addresses_are_separated_by_semicolons_or_commas():
    assert parse_name_servers(" a:1; b:2,c:3 ") == ["a:1", "b:2", "c:3"]
