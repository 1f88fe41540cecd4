"""What brokers answer becomes views with units and reasons; what nobody knows stays unknown."""

from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member
from twinlog.observe.cluster.cluster_view import cluster_view
from twinlog.observe.cluster.health import Level
from twinlog.observe.cluster.history import SAMPLES_MAX, SERIES_MAX, History

NOW = 1_700_000_100_000
RUNTIME = {
    "brokerVersionDesc": "V5_5_0",
    "putTps": "12.50 3.00 1.00 ",
    "getTransferredTps": "7.25 0.00 0.00 ",
    "msgPutTotalTodayNow": "120",
    "msgPutTotalTodayMorning": "20",
    "commitLogDiskRatio": "0.42",
    "bootTimestamp": str(NOW - 90_000),
}


def member(number, kind="java", **more):
    more = {"log_start": 0, "log_end": 1000, "runtime": dict(RUNTIME), **more}
    return Member(number, f"b{number}:1", kind, **more)


def view_of(*members, lags=None, gone=()):
    return cluster_view([Group("C", "b", list(members), lags or {})], NOW, gone)


def test_numbers_of_a_java_broker_have_their_meaning():
    broker = view_of(member(0)).brokers[0]
    assert broker.software == "RocketMQ 5.5.0" and broker.role == "MASTER"
    assert (broker.puts_per_second, broker.gets_per_second) == (12.5, 7.25)
    assert (broker.put_today, broker.got_today) == (100, None), "what it does not say is unknown"
    assert (broker.disk_share, broker.uptime_ms) == (0.42, 90_000)


def test_a_broker_that_does_not_answer_has_no_numbers_and_a_reason():
    silent = Member(1, "b1:1", error="connection refused")
    view = view_of(member(0), silent)
    broker, replica = view.brokers[1], view.groups[0].replicas[0]
    assert broker.puts_per_second is broker.disk_share is broker.uptime_ms is broker.log_end is broker.software is None
    assert replica.lag_bytes is replica.lag_messages is replica.lag_ms is replica.bytes_per_second is None
    assert broker.health.level is Level.CRITICAL and "connection refused" in broker.health.reason
    (sick,) = view.unhealthy
    assert sick.health.reason == "replica 1 at b1:1: it does not answer: connection refused"


def test_numbers_that_cannot_be_are_unknown():
    odd = {"putTps": "nan 1 1", "getTransferredTps": "-3.0 0 0", "commitLogDiskRatio": "nan", "bootTimestamp": "soon"}
    broker = view_of(member(0, runtime={**RUNTIME, **odd})).brokers[0]
    assert broker.puts_per_second is broker.gets_per_second is broker.disk_share is broker.uptime_ms is None


def test_a_gone_broker_and_a_missing_master_are_critical():
    assert "not registered" in view_of(member(0), member(1), gone={"b1:1"}).unhealthy[0].health.reason
    assert "no master" in view_of(member(1)).unhealthy[0].health.reason


def twinlog_replica(**following):
    document = {"role": "SLAVE", "following": {"state": "following", "bytesPerSecond": 9, **following}}
    return member(1, "twinlog", document=document)


def test_a_replica_is_judged_by_its_state_and_its_lag():
    def judged(replica, lag):
        return view_of(member(0), replica, lags={1: lag} if lag else None).groups[0].replicas[0].health

    assert judged(twinlog_replica(), LagFacts(0, 0, True, 0, True)).is_ok
    assert judged(twinlog_replica(), LagFacts(5, in_sync=False)).level is Level.WARNING
    late = judged(twinlog_replica(), LagFacts(2048, in_sync=True, counted_out=True))
    assert late.level is Level.WARNING and "2.0 KiB behind" in late.reason
    refused = judged(twinlog_replica(state="refused", reason="it is ahead"), LagFacts(in_sync=False))
    assert refused.level is Level.CRITICAL and "it is ahead" in refused.reason
    assert judged(twinlog_replica(state="connecting"), None).level is Level.WARNING
    of_4_9 = judged(member(1), LagFacts(0, 0, True, 0, None))
    assert of_4_9.is_ok and "unknown" in of_4_9.reason, "4.9 does not say whether it follows"


def test_a_full_disk_is_named():
    def disk(share):
        return view_of(member(0, runtime={**RUNTIME, "commitLogDiskRatio": share})).brokers[0].health

    assert [disk(share).level for share in ("0.8", "0.87", "0.95", "-1")] == [
        Level.OK,
        Level.WARNING,
        Level.CRITICAL,
        Level.OK,
    ]
    assert "95 %" in disk("0.95").reason


def test_history_is_bounded_and_a_rate_is_measured_where_nobody_says_it():
    history = History()
    for second in range(SAMPLES_MAX + 10):
        history.record(("x", "a"), second * 1000, second)
    points = history.series(("x", "a")).since(0)
    assert len(points) == SAMPLES_MAX and points[-1] == ((SAMPLES_MAX + 9) * 1000, SAMPLES_MAX + 9)
    assert history.series(("x", "a")).per_second() == 1.0
    for number in range(SERIES_MAX + 5):
        history.record(("y", str(number)), 0, 0)
    assert history.series(("x", "a")).last is None, "the series without news went first"
    assert history.series(("y", str(SERIES_MAX + 4))).last == 0


def test_changes_between_two_rounds_are_events():
    history = History()
    history.add(view_of(member(0), twinlog_replica(), lags={1: LagFacts(0, 0, True, 0, True)}))
    history.add(view_of(member(0), Member(1, "b1:1", error="timeout")))
    swapped = [Member(0, "b1:1", "twinlog", {"role": "ASYNC_MASTER", "epoch": 3}), Member(1, "b0:1", "twinlog")]
    history.add(cluster_view([Group("C", "b", swapped)], NOW))
    texts = [one.text for one in history.events]
    assert texts[0] == "b1:1: it does not answer: timeout" and history.events[0].level is Level.CRITICAL
    assert "the master was b0:1 and is b1:1 now, epoch 3" in texts
