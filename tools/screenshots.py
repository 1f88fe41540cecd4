"""Makes the pictures of the dashboard in docs/images/: two pairs under load, in a real Chromium.

python -m tools.screenshots
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path

from tests.dashboard.browser import new_page, running_browser, start_dashboard
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import ConsumerOptions, Outgoing, StartFrom
from twinlog.client.sync import Admin, Producer, PushConsumer

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BYTES_MAX = 160_000
LOOK_MS = 60_000  # so that charts have something to show
TEAS = ("Assam", "Darjeeling", "Sencha", "Oolong", "Earl Grey")
# name -> path, dark, width, height
PICTURES = {
    "dashboard-cluster": ("/", False, 1280, 860),
    "dashboard-replication": ("/replication", False, 1280, 860),
    "dashboard-replication-dark": ("/replication", True, 1280, 860),
    "dashboard-narrow": ("/replication", False, 390, 844),
    "dashboard-topic": ("/topics?topic=Orders", False, 1280, 860),
    "dashboard-group": ("/groups?group=billing", False, 1280, 860),
    "dashboard-messages": ("/messages?topic=Orders&count=12", False, 1280, 860),
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
            time.sleep(LOOK_MS / 1000)
            for name, (path, dark, width, height) in PICTURES.items():
                with new_page(browser, dark=dark, width=width, height=height) as page:
                    page.goto(dashboard.url + path)
                    page.wait_for_timeout(15_000 if "topic=" in path or "group=" in path else 7_000)
                    _save(page, IMAGES / f"{name}.png")
            stop.set()
            load.join(10)


def _save(page: object, target: Path) -> None:
    page.screenshot(path=target)  # type: ignore[attr-defined]
    size = target.stat().st_size
    assert size < BYTES_MAX, f"{target} has {size} bytes, at most {BYTES_MAX} are wanted"
    print(f"{target.name}: {size:,} bytes")


def _work(names: str, stop: threading.Event) -> None:
    """A shop: `billing` is slow and falls behind now and then, `warehouse` follows."""
    with Admin(names) as admin:
        for topic in ("Orders", "Payments"):
            admin.create_topic(topic, queues=2)
    options = ConsumerOptions(start_from=StartFrom.FIRST)

    def bill(message: object) -> None:
        time.sleep(1.2 if time.time() % 20 < 8 else 0.0)

    billing = PushConsumer(names, "billing", bill, consumer_options=options)
    warehouse = PushConsumer(names, "warehouse", lambda message: None, consumer_options=options)
    for consumer in (billing, warehouse):
        consumer.subscribe("Orders", "*")
    with Producer(names, "shop") as producer, billing, warehouse:
        number = 0
        while not stop.wait(0.02):
            number += 1
            order = {"order": 7000 + number, "tea": TEAS[number % 5], "cups": 1 + number % 3}
            producer.send(Outgoing("Orders", json.dumps(order), tags="tea", keys=f"order-{7000 + number}"))
            if number % 3 == 0:
                producer.send(Outgoing("Payments", json.dumps({"order": 7000 + number, "paid": True})))


if __name__ == "__main__":
    main()
