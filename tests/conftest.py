"""Settings for all tests."""

import logging
from collections.abc import Iterator

import hypothesis
import pytest

# A busy machine must not turn a slow example into a failure; a real failure prints how to repeat it.
hypothesis.settings.register_profile("twinlog", deadline=None, print_blob=True)
hypothesis.settings.load_profile("twinlog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with Spark, which take longest, come first: no worker is left alone with one of them at the end."""
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: item.path not in with_spark)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that runs a command sets up logging; the next test's `caplog` must not suffer from it."""
    loggers = [logging.getLogger(name) for name in ("twinlog", "asyncio")]
    before = [(one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)
