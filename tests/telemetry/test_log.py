import io
import json
import logging

import pytest

from twinlog.telemetry.log import get_logger, setup_logging


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
    assert not get_logger("twinlog.x").is_enabled("info")


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
