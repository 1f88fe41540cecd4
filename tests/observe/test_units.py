"""Numbers have units, and what is unknown is not 0."""

from twinlog.observe.units import (
    ago_text,
    byte_rate_text,
    bytes_text,
    count_text,
    duration_text,
    percent_text,
    rate_text,
    time_text,
)


def test_numbers_read_well():
    assert [bytes_text(n) for n in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    assert byte_rate_text(2048) == "2.0 KiB/s"
    assert [rate_text(n) for n in (0, 12.34, 12345.6)] == ["0.0 msg/s", "12.3 msg/s", "12,346 msg/s"]
    assert [count_text(1234567), count_text(12, exact=False)] == ["1,234,567", "~12"]
    assert [duration_text(ms) for ms in (5, 4_200, 185_000, 7_500_000, 187_200_000)] == [
        "5 ms",
        "4.2 s",
        "3 min 5 s",
        "2 h 5 min",
        "2 d 4 h",
    ]
    assert percent_text(0.425) == "42 %" and ago_text(1_000, 3_000) == "2.0 s ago"


def test_unknown_is_a_word():
    texts = (bytes_text, byte_rate_text, rate_text, count_text, duration_text, percent_text, time_text)
    assert {text(None) for text in texts} == {"unknown"} and ago_text(None, 1) == "unknown"
    assert {time_text(ms) for ms in (2**62, -(2**62))} == {"unknown"}, "a broker may say anything"
