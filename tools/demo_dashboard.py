"""`make demo`, last part: the dashboard of a pair under load; `make demo KEEP=1` keeps it running until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from demo_steps import Server, broker_file, console, free_port, step, until
from rich.panel import Panel

from twinlog.client import ClientError, NetError, Outgoing
from twinlog.client.sync import Producer

_PAUSE_S = 0.01


def show(folder: Path, stack: contextlib.ExitStack) -> None:
    step(1, "A name server, a master, its replica, and the dashboard that shows them.")
    names = Server(folder, "namesrv", "namesrv", "--port", "0")
    stack.callback(names.end, signal.SIGTERM)
    roles = {"master": ("brokerRole=SYNC_MASTER",), "replica": ("brokerRole=SLAVE", "brokerId=1")}
    for name, lines in roles.items():
        broker = Server(folder, name, "broker", "-c", broker_file(folder, name, names.address, *lines))
        stack.callback(broker.end, signal.SIGTERM)
    port = free_port()
    dashboard = Server(folder, "dashboard", "dashboard", "-n", names.address, "--port", str(port), "--no-open")
    stack.callback(dashboard.end, signal.SIGTERM)
    url = f"http://127.0.0.1:{port}/"
    until(lambda: urllib.request.urlopen(f"{url}health").status == 200, "the dashboard answers")
    console.print(Panel(f"The dashboard: {url}", expand=False))
    if not os.environ.get("KEEP"):
        console.print("   It ends with this demo. To look around: make demo KEEP=1")
        return
    step(2, "Messages are sent until Ctrl-C. Kill a broker, or switch the master on the Replication page.")
    stop = threading.Event()
    sending = threading.Thread(target=_send, args=(names.address, stop), daemon=True)
    sending.start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
    stop.set()
    with contextlib.suppress(KeyboardInterrupt):  # pressed twice
        sending.join(10)


def _send(names: str, stop: threading.Event) -> None:
    with Producer(names, "shop") as producer:
        number = 0
        while not stop.wait(_PAUSE_S):
            number += 1
            with contextlib.suppress(ClientError, NetError):  # whoever looks may have stopped a broker
                producer.send(Outgoing("Orders", f"order {number}", keys=f"order-{number}"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as directory, contextlib.ExitStack() as stack:
        show(Path(directory), stack)
