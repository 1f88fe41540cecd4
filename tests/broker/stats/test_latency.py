from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.stats.latency import WINDOW_MS, Latencies


def test_every_message_stands_in_java_s_bucket_for_its_duration():
    times = Latencies(0)
    times.took(0.0009, 5)
    times.took(0.001)
    times.took(0.03, 2)
    times.took(12.0)
    shown = dict(part.split("]:") for part in times.by_java_s_buckets().split())
    assert {name.strip("["): int(count) for name, count in shown.items() if count != "0"} == {
        "<=0ms": 5,
        "0~10ms": 1,
        "10~50ms": 2,
        "10s~": 1,
    }
    assert times.longest_s == 12.0


def test_percentiles_are_rounded_up_and_never_above_the_longest():
    times = Latencies(0)
    assert times.percentile_ms(0.99) == 0
    times.took(0.00003, 990)
    times.took(0.007, 10)
    assert times.percentile_ms(0.99) == 0.05
    assert times.percentile_ms(0.999) == 7.0


def test_after_two_windows_only_the_longest_is_remembered():
    times = Latencies(0)
    times.took(0.3)
    times.tick(WINDOW_MS)
    assert "[200~500ms]:1" in times.by_java_s_buckets()
    times.tick(2 * WINDOW_MS)
    assert "[200~500ms]:0" in times.by_java_s_buckets()
    assert (times.longest_s, times.percentile_ms(0.99)) == (0.3, 0)


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_percentile_covers_the_part_it_names(seconds, part):
    times = Latencies(0)
    for one in seconds:
        times.took(one)
    limit_ms = times.percentile_ms(part)
    assert sum(one * 1000 <= limit_ms for one in seconds) >= len(seconds) * part - 1e-6
