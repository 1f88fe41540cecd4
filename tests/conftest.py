"""Settings for all tests."""

import logging
from collections.abc import Iterator

import hypothesis
import pytest

# A busy machine must not turn a slow example into a failure; a real failure prints how to repeat it.
hypothesis.settings.register_profile("twinlog", deadline=None, print_blob=True)
hypothesis.settings.load_profile("twinlog")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that runs a command sets up logging; the next test's `caplog` must not suffer from it."""
    loggers = [logging.getLogger(name) for name in ("twinlog", "asyncio")]
    before = [(one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)
