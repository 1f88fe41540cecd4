"""Everything that a resolver could choke on is refused before a resolver sees it; everything usual is an address."""

import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.base.addresses import (
    Address,
    AddressError,
    address_text,
    check_bind_address,
    check_host,
    java_address_text,
    local_address,
    own_ip_address,
    parse_address,
)
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.settings.updates import plan_broker_update

GOOD = {
    "127.0.0.1:10911": Address("127.0.0.1", 10911),
    " broker-a:1 ": Address("broker-a", 1),
    "my_broker.namespace.svc.cluster.local:65535": Address("my_broker.namespace.svc.cluster.local", 65535),
    "host.:9876": Address("host.", 9876),
    "bücher.example:9876": Address("bücher.example", 9876),
    "[::1]:80": Address("::1", 80),
    "::1:10911": Address("::1", 10911),  # how Java writes it
    "fe80::1%eth0:10911": Address("fe80::1%eth0", 10911),
}
BAD = [
    *("", "host", "host:", ":1", "host:x", "host:0", "host:70000", "host:-1", "host:1\u0661", "host:²"),
    *("..:5", "a..b:5", ".a:5", "-a:5", f"{'a' * 64}:5", f"{'a.' * 127}:5", "x" * 5000 + ":5", "h:" + "9" * 5000),
    *("a\0b:5", "a b:5", "a/b:5", "a\nb:5", "http://a:5", "a,b:5", "a;b:5", "\ud800:5", "[a]:5", "[]:5", "::g:5"),
    *("::::5", "::1%:5", "fe80::1%a/b:5", "\u200b:5", "\u3002:5"),
]


@pytest.mark.parametrize("text", GOOD)
def test_names_ipv4_and_ipv6_are_addresses(text):
    assert parse_address(text) == GOOD[text]
    assert parse_address(str(GOOD[text])) == GOOD[text]


def test_an_ipv6_host_is_in_brackets_once_except_where_java_reads_it():
    assert address_text("::1", 80) == address_text("[::1]", 80) == "[::1]:80"
    assert address_text("192.0.2.1", 80) == java_address_text("192.0.2.1", 80) == "192.0.2.1:80"
    assert java_address_text("::1", 80) == "::1:80"


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_an_address_is_refused_in_a_line(text):
    with pytest.raises(AddressError, match="is not host:port") as refused:
        parse_address(text)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@given(st.text(max_size=80) | st.from_regex(r"[a-z0-9.:%\[\]_-]{1,20}:[0-9]{1,6}", fullmatch=True))
def test_what_is_accepted_never_makes_a_resolver_fail_in_another_way_than_by_os_error(text):
    with contextlib.suppress(AddressError):
        address = parse_address(text)
        assert 0 < address.port <= 65535
        # Numeric only: the same encoding and checks, and no question to a name server.
        with contextlib.suppress(OSError):
            socket.getaddrinfo(address.host, address.port, flags=socket.AI_NUMERICHOST)


def test_the_port_below_the_first_is_an_error():
    assert str(parse_address("[::1]:10911").below(2)) == "[::1]:10909"
    with pytest.raises(AddressError, match="no port 2 below 2"):
        Address("h", 2).below(2)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("namesrvAddr=..:5", "namesrvAddr=..:5"),
        ("namesrvAddr=127.0.0.1:9876;..:5", "..:5"),
        ("haMasterAddress=a..b:5", "haMasterAddress=a..b:5"),  # shorter than 6 characters: not given, as in Java
        ("brokerIP1=..", "brokerIP1=.."),
        ("brokerIP2=a b", "brokerIP2=a b"),
        ("bindAddress=..", "bindAddress=.."),
    ],
)
def test_a_bad_address_in_a_file_is_named_with_its_line_and_cannot_be_written_by_a_request(line, word):
    with pytest.raises(SettingsError, match=r"broker\.conf:2") as refused:
        load_broker_conf(text=f"brokerName=b\n{line}\n", environment={})
    assert word in str(refused.value) and "write for example" in str(refused.value)
    with pytest.raises(SettingsError, match="write for example"):
        plan_broker_update(load_broker_conf(text="", environment={}), line)


def test_the_environment_is_held_to_the_same_rule():
    with pytest.raises(SettingsError, match=r"command line or environment: namesrvAddr=\.\.:5"):
        load_broker_conf(text="", environment={"NAMESRV_ADDR": "..:5"})


def test_hosts_to_listen_on_may_be_empty_and_hosts_to_be_reached_at_may_not():
    assert check_bind_address("") is None and check_host("[::1]") is None and check_host("broker-a") is None
    assert check_host("") is not None


def test_what_records_hold_is_an_address_even_while_a_name_is_not_known(monkeypatch):
    own_ip_address.cache_clear()
    assert own_ip_address("10.0.0.7") == "10.0.0.7" and own_ip_address("fe80::1%eth0") == "fe80::1"
    both = [(socket.AF_INET6, 1, 6, "", ("fd00::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ("10.0.0.8", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    assert own_ip_address("broker-a-0.broker-a") == "10.0.0.8"

    def unknown(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert own_ip_address("broker-a-1.broker-a") == local_address()
    own_ip_address.cache_clear()
