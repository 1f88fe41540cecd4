"""`make demo`: a name server and a broker, a few messages through them, and what happened, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from demo_steps import TWINLOG, console, step
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from twinlog.client import Admin, ConsumerOptions, Message, Outgoing, Producer, PushConsumer, RetryLater, StartFrom

TOPIC = "TeaOrders"
DRINKS = ["green tea", "black tea", "mint tea", "coffee", "water", "green tea"]


@contextlib.contextmanager
def server(*words: str, log: Path) -> Iterator[str]:
    """A twinlog process; the line it prints when it is ready."""
    with (
        log.open("w") as errors,
        subprocess.Popen([*TWINLOG, *words], stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            if not line:
                raise SystemExit(f"twinlog {words[0]} did not start:\n{log.read_text()}")
            yield line
        finally:
            process.terminate()


def show_servers(folder: Path, stack: contextlib.ExitStack) -> str:
    step(1, "Start a name server: brokers register there, clients ask it where topics are.", "twinlog namesrv --port 0")
    started = time.perf_counter()
    line = stack.enter_context(server("namesrv", "--port", "0", log=folder / "namesrv.log"))
    port = re.search(r":(\d+)", line)
    assert port is not None
    names = f"127.0.0.1:{port[1]}"
    console.print(f"   {line}  [dim]({time.perf_counter() - started:.1f} s)[/]")

    conf = folder / "broker.conf"
    conf.write_text(
        f"brokerName=broker-a\nnamesrvAddr={names}\nbrokerIP1=127.0.0.1\nlistenPort=0\n"
        f"storePathRootDir={folder / 'store'}\nmappedFileSizeCommitLog={16 << 20}\n"
        "maxHashSlotNum=5000\nmaxIndexNum=20000\n"
    )
    step(2, "Start a broker: it keeps the messages, here in a temporary folder.", "twinlog broker -c broker.conf")
    started = time.perf_counter()
    line = stack.enter_context(server("broker", "-c", str(conf), log=folder / "broker.log"))
    console.print(f"   {line}  [dim]({time.perf_counter() - started:.1f} s)[/]")
    return names


class Waiters:
    """Two members of one consumer group, who note what they serve."""

    def __init__(self, names: str) -> None:
        self.served: list[tuple[str, str, int, int]] = []
        self.done = asyncio.Event()
        self.members = {name: self._member(names, name) for name in ("Ann", "Ben")}
        self._spilt = False

    def _member(self, names: str, name: str) -> PushConsumer:
        async def serve(message: Message) -> None:
            drink = message.body.decode()
            if drink == "coffee" and not self._spilt:
                self._spilt = True
                raise RetryLater(delay_level=1)  # hand it back: level 1 of the broker's delays is a second
            self.served.append((name, drink, message.queue_id, message.reconsume_times))
            if len(self.served) == len(DRINKS):
                self.done.set()

        options = ConsumerOptions(start_from=StartFrom.FIRST)
        consumer = PushConsumer(names, "waiters", serve, consumer_options=options)
        consumer.subscribe(TOPIC)
        return consumer

    def queues_of(self, name: str) -> list[int]:
        return sorted(queue.queue_id for queue in self.members[name].workers if queue.topic == TOPIC)


async def show_messages(names: str) -> None:
    step(3, f"Create the topic {TOPIC} with two queues; two consumers of one group share them.")
    async with Admin(names) as admin:
        await admin.create_topic(TOPIC, queues=2)
    waiters = Waiters(names)
    async with waiters.members["Ann"], waiters.members["Ben"], asyncio.timeout(20):
        while not all(map(waiters.queues_of, waiters.members)):  # noqa: ASYNC110 (they settle it among themselves)
            await asyncio.sleep(0.05)
        for name in waiters.members:
            console.print(f"   {name} reads queue {waiters.queues_of(name)[0]}")
        step(4, f"Send {len(DRINKS)} orders. The broker answers with the place where each one is stored.")
        await show_sending(names)
        step(5, "Consume them. The first coffee is spilt: the broker delivers it again, a second later.")
        await waiters.done.wait()
    table = Table("served by", "drink", "attempt", box=None, header_style="cyan")
    for name, drink, _, retries in waiters.served:
        table.add_row(f"  {name}", drink, str(retries + 1))
    console.print(table)


async def show_sending(names: str) -> None:
    table = Table("order", "tag", "queue", "offset", "message id", box=None, header_style="cyan")
    async with Producer(names, "shop") as producer:
        for i, drink in enumerate(DRINKS, 1):
            tag = "cold" if drink == "water" else "hot"
            sent = await producer.send(Outgoing(TOPIC, drink, tags=tag, keys=f"order-{i}"))
            table.add_row(f"  {drink}", tag, str(sent.queue.queue_id), str(sent.queue_offset), sent.message_id)
    console.print(table)


def shell(words: list[str], names: str | None = None, *, piped: str = "") -> None:
    """Show a command and run it; its output stands where it would in a shell."""
    before = f"printf {piped!r} | " if piped else ""
    console.print(Text(f"   $ {before}twinlog {' '.join(words)}", "dim"))
    sys.stdout.flush()
    where = ["-n", names] if names else []
    subprocess.run([*TWINLOG, *words, *where], input=piped.encode(), stderr=subprocess.STDOUT, check=True)


def show_shell(names: str) -> None:
    step(6, "The same from the shell: lines in, lines out.")
    shell(["send", "-t", "Kitchen"], names, piped="cake\nbread\n")
    shell(["consume", "-t", "Kitchen", "--max", "2"], names)
    step(7, "Ask how far the group is, with mqadmin's commands (the real mqadmin works too).")
    shell(["admin", "consumerProgress", "-g", "waiters"], names)


def show_store(folder: Path) -> None:
    step(8, "Both have stopped. What is left is a RocketMQ store: a Java broker could go on with it.")
    for file in sorted((folder / "store").rglob("*")):
        if file.is_file() and ("commitlog" in file.parts or TOPIC in file.parts or file.suffix == ".json"):
            console.print(f"   {file.relative_to(folder)}  [dim]{file.stat().st_size:,} bytes[/]")


def main() -> None:
    started = time.perf_counter()
    console.print(Panel("Twinlog: a RocketMQ-compatible name server, broker and client in Python", style="bold blue"))
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as home, contextlib.ExitStack() as stack:
        folder = Path(home)
        names = show_servers(folder, stack)
        asyncio.run(show_messages(names))
        show_shell(names)
        stack.close()
        show_store(folder)
    console.print(
        f"\n[bold green]Done in {time.perf_counter() - started:.1f} s.[/] Next: `twinlog dev` runs both servers"
    )
    console.print("until Ctrl-C; docs/client.md shows how to send and consume from your own program.")


if __name__ == "__main__":
    main()
