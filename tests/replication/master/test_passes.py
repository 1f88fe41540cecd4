"""Passes: how a master recognises a replica that has compared its log with the master's."""

import pytest

from twinlog.replication.errors import JoinRefused
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master.passes import Passes

HELLO = HelloHeader(cluster_name="C", broker_name="B", broker_id=1, instance="one", log_start=0, log_end=0)


def test_a_pass_is_good_once():
    passes = Passes()
    number = passes.issue(HELLO, "B", "C", now_ms=0)
    assert passes.redeem(number, now_ms=10).identity == "one"
    with pytest.raises(JoinRefused):
        passes.redeem(number, now_ms=10)


def test_a_pass_ends_when_the_master_steps_down():
    """After the next promotion its log may be another one than the replica has compared with its own.

    A replica that was stopped between its hello and its connection would join with a log that differs, and its
    reports would count. Seen to fail with a `forget_all` that does nothing.
    """
    passes = Passes()
    number = passes.issue(HELLO, "B", "C", now_ms=0)
    passes.forget_all()
    with pytest.raises(JoinRefused):
        passes.redeem(number, now_ms=10)
