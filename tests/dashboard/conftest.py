"""A browser, and a pair with a dashboard, for each module.

Playwright keeps an event loop in the thread of the tests as long as it runs, so modules with a browser have no
asynchronous tests, and the browser ends with its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.browser import Dashboard, running_browser, start_dashboard
from tests.dashboard.jobs import make_archive, make_sync
from tests.interop.java_rocketmq import Broker, NameServer
from tests.interop.twinlog_servers import Twinlog


@dataclass
class Shown:
    """A running pair, and the dashboard that shows it."""

    home: Path
    names: NameServer
    master: Broker
    replica: Broker
    dashboard: Dashboard
    stack: ExitStack

    def url(self, path: str = "/") -> str:
        return self.dashboard.url + path

    def restart_replica(self) -> None:
        self.replica = self.stack.enter_context(
            Twinlog().broker(self.home / "replica", self.names.address, port=self.replica.port, **REPLICA)
        )


MASTER = {"brokerRole": "ASYNC_MASTER"}
REPLICA = {"brokerRole": "SLAVE", "brokerId": "1"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        names = stack.enter_context(Twinlog().name_server(home / "namesrv"))
        master = stack.enter_context(Twinlog().broker(home / "master", names.address, **MASTER))
        replica = stack.enter_context(Twinlog().broker(home / "replica", names.address, **REPLICA))
        make_archive(home / "archive")
        make_sync(home / "copies")
        jobs = ["--pipeline", str(home / "archive"), "--pipeline", str(home / "copies")]
        dashboard = stack.enter_context(start_dashboard(home / "dashboard", names.address, *jobs))
        yield Shown(home, names, master, replica, dashboard, stack)
