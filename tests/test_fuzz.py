"""Each fuzz target plays the same few seeds in every test run; `python -m tools.fuzz` plays as many as you like."""

import logging

import pytest
from tools.fuzz import incoming, nameserver, protected


@pytest.mark.parametrize("target", [incoming, nameserver, protected], ids=["broker", "name server", "accounts"])
def test_nothing_breaks_a_server(target, caplog):
    caplog.set_level(logging.CRITICAL)
    assert target.fuzz(range(400))
