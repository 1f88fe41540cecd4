from twinlog.telemetry.metrics import Metrics


def test_counters_gauges_and_watched_values_appear_in_the_exposition():
    metrics = Metrics()
    metrics.counter("rocketmq_messages_in", "Messages stored").add(3)
    metrics.gauge("rocketmq_connections", "Open connections").set(2)
    metrics.watch("rocketmq_lag", "Lag", lambda: {("a",): 1, ("b",): 5}, label_names=["broker"])
    metrics.family("rocketmq_requests", "Requests", ["code"]).labels("105").add()
    text = metrics.exposition().decode()
    for line in (
        "rocketmq_messages_in_total 3.0",
        "rocketmq_connections 2.0",
        'rocketmq_lag{broker="b"} 5.0',
        'rocketmq_requests_total{code="105"} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in text


def test_a_reader_that_fails_does_not_hide_the_others():
    metrics = Metrics()
    metrics.watch("broken", "b", lambda: 1 / 0)
    metrics.gauge("fine", "f").set(1)
    assert "fine 1.0" in metrics.exposition().decode()
