import pytest

from twinlog.base.address_list import address_list, check_address_list, is_loopback, plain_host


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("192.0.2.1; 10.0.0.0/8", ["192.0.2.1", "10.9.8.7", "::ffff:10.1.2.3"], ["192.0.2.2", "::1", "", "nonsense"]),
        ("fd00::/8,127.0.0.1", ["fd00::7", "127.0.0.1", "fd00::7%eth0"], ["fe80::1", "127.0.0.2"]),
        ("*", ["192.0.2.1", "::1"], []),
        ("", [], ["127.0.0.1"]),
        (None, [], ["127.0.0.1"]),
    ],
)
def test_addresses_and_networks_are_found_in_a_list(text, inside, outside):
    found = address_list(text)
    assert all(host in found for host in inside) and not any(host in found for host in outside)
    assert bool(found) == bool(inside)


@pytest.mark.parametrize("text", ["localhost", "192.0.2.1/33", "10.0.0.0/8;x", "1.2.3.4:5"])
def test_a_list_that_is_not_one_is_named(text):
    assert "is not a list of addresses" in (check_address_list(text) or "")


def test_loopback_is_this_machine():
    assert all(map(is_loopback, ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "10.0.0.1", "", "localhost"]))


@pytest.mark.parametrize(
    ("host", "plain"),
    [("::ffff:192.0.2.1", "192.0.2.1"), ("192.0.2.1", "192.0.2.1"), ("::1", "::1"), ("fd00::7", "fd00::7"), ("", "")],
)
def test_an_address_of_ipv4_has_one_spelling(host, plain):
    assert plain_host(host) == plain
