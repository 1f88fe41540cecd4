"""Statistics: totals, windows of a minute, an hour and a day, and rates over seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.stats.stats import BrokerStats

START = 1_800_000_000_000


def sent(stats: BrokerStats, topic: str, count: int, size: int = 100) -> None:
    counter = stats.puts(topic)
    counter.count += count
    counter.bytes += count * size


def run(stats: BrokerStats, seconds: int, per_second: int = 0, start_s: int = 0) -> int:
    for second in range(start_s + 1, start_s + seconds + 1):
        sent(stats, "T1", per_second)
        stats.tick(START + second * 1_000)
    return START + (start_s + seconds) * 1_000


def test_a_statistic_nobody_fed_does_not_exist():
    stats = BrokerStats(START)
    assert stats.view("TOPIC_PUT_NUMS", "T1", START) is None
    assert stats.view("NO_SUCH_NAME", "DefaultCluster", START) is None
    assert stats.view("BROKER_PUT_NUMS", "another cluster", START) is None


def test_a_steady_stream_shows_its_rate_in_every_window():
    stats = BrokerStats(START)
    now_ms = run(stats, 100, per_second=5)
    seen = stats.view("TOPIC_PUT_NUMS", "T1", now_ms)
    assert seen.minute.tps == seen.hour.tps == seen.day.tps == 5.0
    assert seen.day.sum == 500 and seen.hour.sum == 500
    assert 300 <= seen.minute.sum <= 350
    size = stats.view("TOPIC_PUT_SIZE", "T1", now_ms)
    assert size.day.sum == 50_000 and size.day.average == 100.0
    assert stats.put_tps("T1", now_ms) == 5.0


def test_what_is_over_leaves_the_minute_first_then_the_hour():
    stats = BrokerStats(START)
    now_ms = run(stats, 20, per_second=5)
    now_ms = run(stats, 80, start_s=20)
    seen = stats.view("TOPIC_PUT_NUMS", "T1", now_ms)
    assert (seen.minute.sum, seen.hour.sum, seen.day.sum) == (0, 100, 100)
    now_ms = run(stats, 2 * 3_600, start_s=100)
    seen = stats.view("TOPIC_PUT_NUMS", "T1", now_ms)
    assert (seen.minute.sum, seen.hour.sum, seen.day.sum) == (0, 0, 100)


def test_groups_and_send_backs_are_asked_for_as_topic_at_group():
    stats = BrokerStats(START)
    stats.gets("T1", "G").count += 3
    stats.send_backs("T1", "G").count += 1
    assert stats.view("GROUP_GET_NUMS", "T1@G", START + 1_000).day.sum == 3
    assert stats.view("SNDBCK_PUT_NUMS", "T1@G", START + 1_000).day.sum == 1
    assert stats.view("BROKER_GET_NUMS", "DefaultCluster", START + 1_000).day.sum == 3


def test_a_deleted_topic_stays_in_the_totals_only():
    stats = BrokerStats(START)
    sent(stats, "T1", 4)
    stats.gets("T1", "G").count += 3
    stats.forget_topic("T1")
    assert stats.view("TOPIC_PUT_NUMS", "T1", START) is None
    totals = stats.totals(START)
    assert (totals.puts, totals.put_bytes, totals.gets) == (4, 400, 3)


def test_rates_look_back_as_far_as_asked_or_to_the_start():
    stats = BrokerStats(START)
    assert stats.per_second("puts", 10) == 0.0
    run(stats, 20, per_second=10)
    run(stats, 10, start_s=20)
    assert stats.per_second("puts", 10) == 0.0
    assert stats.per_second("puts", 60) == 6.67


def test_a_new_day_remembers_this_morning_and_the_one_before():
    stats = BrokerStats(START)
    sent(stats, "T1", 4)
    stats.new_day(START)
    sent(stats, "T1", 3)
    stats.new_day(START)
    assert (stats.yesterday_morning.puts, stats.today_morning.puts) == (4, 7)


def test_a_topic_that_is_made_again_has_no_old_readings():
    stats = BrokerStats(START)
    now_ms = run(stats, 100, per_second=5)
    stats.forget_topic("T1")
    sent(stats, "T2", 3)
    assert stats.view("TOPIC_PUT_NUMS", "T2", now_ms).minute.sum == 3
    assert stats.view("TOPIC_PUT_NUMS", "T2", now_ms).day.sum == 3


def test_a_tick_in_steps_pauses_after_each_thousand_of_counters():
    stats, whole = BrokerStats(START), BrokerStats(START)
    for second in range(1, 101):
        for one in (stats, whole):
            for number in range(2_500):
                sent(one, f"T{number}", number % 7)
        pauses = sum(1 for _ in stats.tick_in_steps(START + second * 1_000))
        whole.tick(START + second * 1_000)
        assert pauses == (0 if second % 10 else 3)
    for number in (0, 1, 1_023, 1_024, 2_499):
        seen = stats.view("TOPIC_PUT_NUMS", f"T{number}", START + 100_000)
        assert seen == whole.view("TOPIC_PUT_NUMS", f"T{number}", START + 100_000)
        assert seen.minute.sum == 60 * (number % 7)


@given(st.lists(st.tuples(st.sampled_from(["T1", "T2", "T3"]), st.integers(0, 50)), max_size=60))
def test_the_broker_total_is_the_sum_of_its_topics(sends):
    stats = BrokerStats(START)
    for second, (topic, count) in enumerate(sends, start=1):
        sent(stats, topic, count)
        stats.tick(START + second * 1_000)
    assert stats.totals(START).puts == sum(count for _, count in sends)
