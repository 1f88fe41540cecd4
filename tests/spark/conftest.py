"""One Spark session and one broker for all tests of this folder."""

import fcntl
import importlib.util
import itertools
import tempfile
from pathlib import Path

import pytest

HAS_SPARK = all(importlib.util.find_spec(name) for name in ("pyspark", "pyarrow"))
collect_ignore_glob = [] if HAS_SPARK else ["test_*.py", "*/test_*.py"]


def pytest_report_header() -> str | None:
    return None if HAS_SPARK else "tests/spark is left out: pip install 'twinlog[spark]'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with two cores and retries, as `start` makes it."""
    from twinlog.spark.session import start

    session = start(
        "tests",
        master="local[2,4]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # short runs: compile little
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def connect_port():
    """A local Connect server always takes the same port, so that one test at a time may start it."""
    with (Path(tempfile.gettempdir()) / "twinlog-tests-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def broker():
    from twinlog.broker.embedded import EmbeddedBroker

    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def _producer(broker):
    from twinlog.client.sync import Producer

    with Producer(broker.namesrv_address, "spark-tests") as producer:
        yield producer


@pytest.fixture(scope="session")
def _numbers():
    return itertools.count()


@pytest.fixture
def make_topic(broker, _producer, _numbers):
    """A function that makes a topic of its own for a test."""
    from tests.spark.topics import Topic

    def make(queues: int = 2, name: str | None = None) -> Topic:
        return Topic(broker.namesrv_address, _producer, name or f"Topic{next(_numbers)}", queues)

    return make
