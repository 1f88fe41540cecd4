"""Hundreds of brokers on one machine, many to a process: each is a real one, with ports, store and services.

They are idle. A process that gets SIGUSR1 gives each of its brokers more messages, moves a group on, and says so.

with fleet(folder, name_server, 500) as processes: ...
python -m bench.fleet FOLDER NAME_SERVER FIRST COUNT       one process of them, until it is killed
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twinlog.base.clock import wall_clock_ms
from twinlog.broker.broker import Broker
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.store.log.append import Draft
from twinlog.telemetry.log import setup_logging

BROKERS_PER_PROCESS = 125
# Files as small as they may be, and services that wake rarely: an idle broker should cost next to nothing.
SMALL = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 * 1024),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerWheelEnable": "false",
    "registerNameServerPeriod": "60000",
}
MESSAGES = 20
BODY = bytes(1024)
PORTS_EACH = 4  # a broker's own, two below it, and one above


@contextlib.contextmanager
def fleet(folder: Path, name_server: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """`count` brokers, registered and ready; they are killed at the end."""
    processes, port = [], _free_ports(count * PORTS_EACH)
    try:
        for first in range(0, count, BROKERS_PER_PROCESS):
            size = min(BROKERS_PER_PROCESS, count - first)
            words = [sys.executable, "-m", "bench.fleet", str(folder), name_server, str(first), str(size), str(port)]
            processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"brokers did not start: status {process.wait()}")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def serve(folder: Path, name_server: str, first: int, count: int, port: int) -> None:
    brokers: list[Broker] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(first, first + count):
            ready = asyncio.Event()
            overrides = {
                **SMALL,
                "brokerName": f"broker-{number:03d}",
                "storePathRootDir": str(folder / f"broker-{number:03d}" / "store"),
                "namesrvAddr": name_server,
                "listenPort": str(port + number * PORTS_EACH + 2),
            }
            conf = load_broker_conf(text="", overrides=overrides, environment={})
            broker = Broker(dataclasses.replace(conf, path=None), on_ready=lambda _, ready=ready: ready.set())
            tasks.create_task(broker.run())
            await ready.wait()
            _fill(broker)
            brokers.append(broker)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _fill_all, brokers)
        print("ready", flush=True)


def send_more(processes: list[subprocess.Popen[str]]) -> None:
    """Every broker of the fleet has MESSAGES more when this returns."""
    for process in processes:
        process.send_signal(signal.SIGUSR1)
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "filled":
            raise RuntimeError(f"brokers took no messages: status {process.poll()}")


def _free_ports(count: int) -> int:
    """The first of `count` free ports in a row, below those that the system gives to outgoing connections."""
    for _ in range(200):
        first = random.randrange(10_000, 32_000 - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"no {count} ports in a row are free")


def _fill(broker: Broker) -> None:
    """A few messages, so that there is a log to copy, and a group that has read them."""
    assert broker.context is not None
    store = broker.context.store
    for _ in range(MESSAGES):
        store.append(Draft("TBW102", 0, BODY, b""))
    store.dispatch_pending()
    broker.context.offsets.commit("readers", "TBW102", 0, store.max_offset("TBW102", 0), wall_clock_ms())


def _fill_all(brokers: list[Broker]) -> None:
    for broker in brokers:
        _fill(broker)
    print("filled", flush=True)


def main() -> None:
    import uvloop

    folder, name_server, first, count, port = sys.argv[1:]
    setup_logging("error", False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(folder), name_server, int(first), int(count), int(port)))


if __name__ == "__main__":
    main()
