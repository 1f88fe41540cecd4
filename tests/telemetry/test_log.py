import io
import json
import logging

import pytest

from twinlog.telemetry.line_limit import MANY, SAME
from twinlog.telemetry.log import get_logger, limit_lines, lines_left_out, setup_logging


@pytest.fixture
def lines():
    """Log output as a list of lines; the former handlers come back afterwards."""
    loggers = [logging.getLogger(name) for name in ("twinlog", "asyncio")]
    saved = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    stream = io.StringIO()

    def take(level="info", as_json=False):
        setup_logging(level, as_json, stream)
        return lambda: stream.getvalue().splitlines()

    yield take
    for logger, handlers, level, propagate in saved:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_a_line_has_time_level_module_event_and_fields(lines):
    shown = lines()
    get_logger("twinlog.net.server").warning("a peer left", peer="192.0.2.1:5", after_ms=12)
    (line,) = shown()
    assert line[10] == "T" and line[23] == "Z"
    assert line[25:] == "warning net.server a peer left peer=192.0.2.1:5 after_ms=12"


def test_an_unusual_value_is_quoted_so_that_it_cannot_forge_a_line(lines):
    shown = lines()
    get_logger("twinlog.x").info("topic refused", topic='a b"\nerror x forged', empty="")
    (line,) = shown()
    assert line.endswith(r'topic="a b\"\nerror x forged" empty=""')


def test_lines_below_the_level_are_left_out(lines):
    shown = lines("warning")
    get_logger("twinlog.x").info("hidden")
    assert shown() == []


def test_json_lines_keep_the_types_of_their_fields(lines):
    shown = lines(as_json=True)
    get_logger("twinlog.x").bind(broker="a").error("lost", offset=5)
    record = json.loads(shown()[0])
    assert record.pop("time")
    assert record == {"level": "error", "logger": "x", "event": "lost", "broker": "a", "offset": 5}


def test_an_exception_follows_with_its_traceback(lines):
    shown = lines()
    try:
        raise OSError("disk")
    except OSError:
        get_logger("twinlog.x").exception("flush failed")
    assert shown()[0].endswith("error x flush failed")
    assert shown()[-1] == "OSError: disk"


def test_an_unknown_level_names_the_known_ones():
    with pytest.raises(ValueError, match="'loud' is unknown; choose one of debug, info, warning, error"):
        setup_logging("loud")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_long_field_or_event_is_cut_and_its_length_named(lines, as_json):
    shown = lines(as_json=as_json)
    get_logger("twinlog.x").warning("heartbeat " + "e" * 100_000, client="c" * 1_000_000, many=["g" * 90] * 1000)
    (line,) = shown()
    assert len(line) < 5_000
    assert "(1000000 characters)" in line
    assert "(100010 characters)" in line


def test_a_traceback_keeps_its_ends(lines):
    shown = lines()
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError:
        get_logger("twinlog.x").exception("failed")
    text = "\n".join(shown())
    assert len(text) < 20_000
    assert "Traceback" in text and text.endswith("xxx")


def test_a_peer_s_lines_of_one_kind_are_left_out_after_a_while_and_counted(lines, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("twinlog.telemetry.log.time.monotonic", lambda: now_s[0])
    shown, log = lines(), get_logger("twinlog.x")
    for port in range(MANY.at_once + 50):  # another port is not another peer
        log.warning("refused", peer=f"192.0.2.1:{port}", client="c")
    assert len(shown()) == MANY.at_once
    log.warning("refused", peer="192.0.2.2:1")
    log.warning("another", peer="192.0.2.1:1")
    assert len(shown()) == MANY.at_once + 2
    assert lines_left_out() == 50
    now_s[0] = MANY.summary_s
    log.info("anything")
    assert shown()[-2].endswith(
        "warning telemetry.log lines were left out that repeat themselves lines=50 of=refused peer=192.0.2.1"
    )
    log.warning("refused", peer="192.0.2.1:7777")
    assert shown()[-1].endswith("peer=192.0.2.1:7777")


def test_many_peers_together_have_a_limit_and_an_operator_sets_both(lines, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("twinlog.telemetry.log.time.monotonic", lambda: now_s[0])
    shown, log = lines(), get_logger("twinlog.x")
    limit_lines(2)
    for host in range(50):
        for port in range(30):
            log.warning("refused", peer=f"192.0.2.{host}:{port}")
    assert len(shown()) == 200  # 20 at once of a host, of ten hosts
    assert lines_left_out() == 50 * 30 - 200
    log.warning("another", peer="192.0.2.1:1")
    assert len(shown()) == 201
    now_s[0] = 1.0
    for port in range(30):
        log.warning("refused", peer=f"192.0.2.49:{1000 + port}")
    assert len(shown()) == 203  # two per second of a host


def test_of_lines_that_are_the_same_one_is_written_and_then_a_count(lines, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("twinlog.telemetry.log.time.monotonic", lambda: now_s[0])
    shown, log = lines(), get_logger("twinlog.x")
    for _ in range(5):
        log.warning("the master was lost", master="m:1")
        log.warning("the master was lost", master="m:2")
    assert [line.split()[-1] for line in shown()] == ["master=m:1", "master=m:2"]
    assert lines_left_out() == 8
    now_s[0] = SAME.summary_s
    log.warning("the master was lost", master="m:1")
    assert 'the same line was repeated times=4 line="the master was lost master=m:1"' in shown()[2]
    assert len(shown()) == 5 and shown()[-1].endswith("master=m:1"), "and it is written again"


def test_lines_of_the_loop_that_differ_in_addresses_and_numbers_only_are_one_kind(lines):
    shown = lines()
    for number in range(MANY.at_once + 50):
        logging.getLogger("asyncio").error(
            f"Fatal error on transport {number} at {id(number) + number:#x}, {number:08x}\n"
            f"transport: <_SelectorSocketTransport fd={number}>"
        )
    logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(shown()) == 2 * MANY.at_once + 1
    assert lines_left_out() == 50


def test_what_was_left_out_last_is_counted_at_the_end(lines):
    shown, log = lines(), get_logger("twinlog.x")
    for number in range(MANY.at_once + 1):
        log.info("again", number=number)
    (handler,) = logging.getLogger("twinlog").handlers
    handler.close()
    assert "lines=1 of=again" in shown()[-1]
