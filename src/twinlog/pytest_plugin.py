"""Fixtures for tests that need a broker: `twinlog_broker` for one test, factories for everything else.

    def test_orders_arrive(twinlog_broker):
        producer = twinlog_broker.producer()
        producer.send(Outgoing("Orders", b"one tea"))
        assert [m.body for m in twinlog_broker.messages("Orders")] == [b"one tea"]

Brokers and their name server run in a thread of the test process, on free loopback ports and a temporary directory.
Nothing of Twinlog is imported before a fixture is used. `docs/testing.md` shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twinlog.testing.fixture import BrokerFactory, TwinlogBroker


@pytest.fixture
def twinlog_broker(twinlog_broker_factory: BrokerFactory) -> TwinlogBroker:
    """A broker of its own for this test."""
    return twinlog_broker_factory()


@pytest.fixture(scope="session")
def twinlog_broker_session(twinlog_broker_factory_session: BrokerFactory) -> TwinlogBroker:
    """One broker for all tests of the session; give each test topics of its own, see `isolated`."""
    return twinlog_broker_factory_session()


@pytest.fixture
def twinlog_broker_factory() -> Iterator[BrokerFactory]:
    """Starts clusters for this test: brokers, replicas, settings."""
    yield from _factory()


@pytest.fixture(scope="module")
def twinlog_broker_factory_module() -> Iterator[BrokerFactory]:
    """The same for fixtures of a module: what it starts runs until the module's last test."""
    yield from _factory()


@pytest.fixture(scope="session")
def twinlog_broker_factory_session() -> Iterator[BrokerFactory]:
    """The same for fixtures of the session."""
    yield from _factory()


def _factory() -> Iterator[BrokerFactory]:
    from twinlog.testing.fixture import BrokerFactory

    with closing(BrokerFactory()) as factory:
        yield factory


def __getattr__(name: str) -> Any:
    """`TwinlogBroker` and `BrokerFactory`, for annotations; imported when they are asked for."""
    if name not in ("TwinlogBroker", "BrokerFactory"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from twinlog.testing import fixture

    return getattr(fixture, name)
