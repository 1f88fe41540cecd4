"""Whether and where a replica joins its master, decided on numbers."""

import pytest

from twinlog.replication.replica.join import Begin, LogRange, Refuse, Reseed, Resume, decide_join

MASTER = LogRange(1000, 5500)


@pytest.mark.parametrize(
    ("replica", "options", "plan"),
    [
        (LogRange(0, 0), {}, Begin(5000)),
        (LogRange(0, 0), {"whole_history": True}, Begin(1000)),
        (LogRange(2000, 5500), {}, Resume(5500)),
        (LogRange(0, 1000), {}, Resume(1000)),
        (LogRange(0, 500), {"reseed_allowed": True}, Reseed(5000, LogRange(500, 1000))),
        (LogRange(0, 500), {"reseed_allowed": True, "whole_history": True}, Reseed(1000, LogRange(500, 1000))),
    ],
)
def test_a_replica_joins_where_its_log_allows(replica, options, plan):
    assert decide_join(replica, MASTER, segment_bytes=1000, **options) == plan


@pytest.mark.parametrize(
    ("replica", "options", "named"),
    [
        (LogRange(0, 5501), {}, ["5501", "5500", "1 bytes", "rejoin --store /data/store --cut 5500"]),
        (LogRange(0, 4000), {"differs_at": 3500}, ["3500", "rejoin --store /data/store --cut 3500"]),
        (LogRange(0, 500), {}, ["500 to 1000", "haReseedAllowed=true"]),
        (LogRange(0, 4000), {"master_segment_bytes": 2000}, ["2000", "mappedFileSizeCommitLog=2000"]),
    ],
)
def test_a_refusal_names_the_offsets_and_the_next_step(replica, options, named):
    plan = decide_join(replica, MASTER, segment_bytes=1000, store="/data/store", **options)
    assert isinstance(plan, Refuse) and all(text in plan.reason for text in named)
