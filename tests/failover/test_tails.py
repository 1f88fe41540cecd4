"""Which record of the history a tail belongs to, and what the record says then."""

from twinlog.cli.failover.report import history_report
from twinlog.failover.records import History, Keys, Tail
from twinlog.failover.tails import history_of, is_exact, nothing_lost, with_tail
from twinlog.observe.replicas.failover_groups import Found


def record(epoch, member, source=None, **more):
    values = {"address": f"{member}:10911", "start": 100 * epoch, "reason": "", "at_ms": 0}
    return History(epoch=epoch, member=member, source=source, **values | more)


def tail(member="a", begin=600, end=700, messages=5):
    file = f"/{member}/tail-{begin}-{end}"
    return Tail(member=member, address=f"{member}:10911", begin=begin, end=end, messages=messages, file=file, at_ms=0)


HISTORY = [record(4, "b"), record(5, "a", "b"), record(6, "b", "a", may_lose=True), record(7, "c", "b")]


def test_a_tail_belongs_to_the_failover_that_replaced_its_broker():
    assert history_of(tail("a"), 6, HISTORY).epoch == 6
    assert history_of(tail("a"), 7, HISTORY).epoch == 6, "it came back when the next one led"
    assert history_of(tail("b"), 7, HISTORY).epoch == 7
    assert history_of(tail("b"), 6, HISTORY).epoch == 5, "the one before, since epoch 7 was not there yet"


def test_the_tail_of_a_replica_belongs_to_the_master_that_does_not_have_it():
    assert history_of(tail("d"), 6, HISTORY).epoch == 6
    assert history_of(tail("d"), 99, HISTORY) is None, "that record is deleted"
    noted = with_tail(HISTORY[2], tail("d"))
    assert noted.tails == (tail("d"),) and noted.lost is None and not is_exact(noted)


def test_the_range_is_exact_when_the_old_master_is_back():
    estimate = record(6, "b", "a", may_lose=True, lost=(600, 650))
    noted = with_tail(estimate, tail())
    assert noted.lost == (600, 700) and is_exact(noted) and not is_exact(estimate)
    assert with_tail(noted, tail()) == noted, "noted twice"
    unlost = with_tail(record(6, "b", "a"), tail())
    assert unlost.lost is None and is_exact(unlost), "a SYNC master had acknowledged none of it"


def test_a_lost_master_that_comes_back_with_nothing_more_ends_the_doubt():
    nothing = nothing_lost("a", "a:10911", 7, HISTORY, 5)
    assert (nothing.begin, nothing.end, nothing.messages) == (600, 600, 0)
    noted = with_tail(HISTORY[2], nothing)
    assert noted.lost is None and is_exact(noted)
    assert nothing_lost("a", "a:10911", 7, [*HISTORY[:2], noted], 5) is None
    assert nothing_lost("b", "b:10911", 7, HISTORY, 5) is None, "nothing could be lost"
    known = record(6, "b", "a", may_lose=True, lost=(600, 650))
    assert nothing_lost("a", "a:10911", 7, [known], 5) is None, "it had published more: that is lost"


def test_people_read_what_is_lost_and_whether_that_is_sure():
    estimate = record(6, "b", "abcdefghij", may_lose=True, lost=(600, 650))
    (line,) = history_report(found(estimate)).lines
    assert line.startswith("epoch 6: what is lost is an estimate until store abcdefgh is back")
    exact = with_tail(record(6, "b", "a", may_lose=True), tail())
    (line,) = history_report(found(exact)).lines
    assert line == (
        "epoch 6: a:10911 came back and set aside 5 messages, perhaps acknowledged, bytes 600 to 700 of its log: "
        "/a/tail-600-700"
    )
    (line,) = history_report(found(with_tail(record(6, "b", "a"), tail()))).lines
    assert "none of them acknowledged" in line
    data = history_report(found(exact)).data[0]
    assert data["lost"] == (600, 700) and data["tails"][0]["messages"] == 5 and data["mayLose"] is True


def found(*records):
    return Found("cluster", "broker-a", Keys(), list(records), None)
