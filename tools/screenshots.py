"""Makes the pictures of the dashboard in docs/images/: a pair under load, in a real Chromium.

python -m tools.screenshots
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from tests.dashboard.browser import new_page, running_browser, start_dashboard
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import ConsumerOptions, Outgoing, StartFrom
from twinlog.client.sync import Producer, PushConsumer

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BYTES_MAX = 300_000
LOOK_MS = 40_000  # so that charts have something to show
# name -> path, dark, width, height
PICTURES = {
    "dashboard-cluster": ("/", False, 1280, 860),
    "dashboard-replication": ("/replication", False, 1280, 860),
    "dashboard-replication-dark": ("/replication", True, 1280, 860),
    "dashboard-narrow": ("/replication", False, 390, 844),
}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    servers, stop = Twinlog(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="twinlog-pictures-") as folder:
        home = Path(folder)
        with (
            servers.name_server(home / "namesrv") as names,
            servers.broker(home / "a", names.address, brokerRole="SYNC_MASTER"),
            servers.broker(home / "a1", names.address, brokerRole="SLAVE", brokerId="1"),
            servers.broker(home / "b", names.address, brokerName="broker-b"),
            servers.broker(home / "b1", names.address, brokerName="broker-b", brokerRole="SLAVE", brokerId="1"),
            start_dashboard(home / "dashboard", names.address) as dashboard,
            running_browser() as browser,
        ):
            load = threading.Thread(target=_work, args=(names.address, stop), daemon=True)
            load.start()
            for number, (name, (path, dark, width, height)) in enumerate(PICTURES.items()):
                with new_page(browser, dark=dark, width=width, height=height) as page:
                    page.goto(dashboard.url + path)
                    page.wait_for_timeout(LOOK_MS if number == 0 else 7_000)
                    target = IMAGES / f"{name}.png"
                    page.screenshot(path=target)
                    size = target.stat().st_size
                    assert size < BYTES_MAX, f"{target} has {size} bytes, at most {BYTES_MAX} are wanted"
                    print(f"{target.name}: {size:,} bytes")
            stop.set()
            load.join(10)


def _work(names: str, stop: threading.Event) -> None:
    options = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(names, "billing", lambda message: None, consumer_options=options)
    consumer.subscribe("Orders", "*")
    with Producer(names, "shop") as producer:
        producer.send(Outgoing("Orders", b"the first"))
        with consumer:
            while not stop.wait(0.005):
                producer.send(Outgoing("Orders", b"x" * 400, keys="order"))


if __name__ == "__main__":
    main()
