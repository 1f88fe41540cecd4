from twinlog.telemetry.line_limit import KEYS_MAX, LineLimit


def test_the_number_of_peers_that_are_remembered_has_a_bound():
    limit = LineLimit()
    for number in range(KEYS_MAX + 10):
        limit.admit(("event", str(number)), 0.0)
    assert len(limit._buckets) == KEYS_MAX
