"""`make demo`, second part: a master and its replica, the master's death and return, and the proof of equal logs."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from pathlib import Path

from demo_steps import Server, broker_file, console, shell, step, until
from rich.panel import Panel

from twinlog.client import Message, MessageQueue, Outgoing, SendStatus
from twinlog.client.sync import Producer, PullConsumer

TOPIC = "Ledger"
MESSAGES = 2000


def send(names: str, numbers: range) -> list[str]:
    """The ids of the messages that were acknowledged by master and replica."""
    with Producer(names, "bank") as producer:
        sent = [producer.send(Outgoing(TOPIC, f"entry {n}", keys=f"entry-{n}")) for n in numbers]
    return [result.message_id for result in sent if result.status is SendStatus.OK]


def read_everything(names: str) -> list[Message]:
    found: list[Message] = []
    with PullConsumer(names, "auditors") as reader:
        for queue in reader.queues(TOPIC):
            found += read_queue(reader, queue)
    return found


def read_queue(reader: PullConsumer, queue: MessageQueue) -> list[Message]:
    found: list[Message] = []
    offset, end = 0, reader.max_offset(queue)
    while offset < end:
        pulled = reader.pull(queue, offset)
        found += pulled.messages
        offset = pulled.next_offset
    return found


def show(folder: Path, stack: contextlib.ExitStack) -> None:
    step(1, "A name server, a SYNC_MASTER, and its replica: a send is acknowledged when both hold it.")
    names = Server(folder, "namesrv", "namesrv", "--port", "0")
    stack.callback(names.end, signal.SIGTERM)
    conf = broker_file(folder, "master", names.address, "brokerRole=SYNC_MASTER")
    master = Server(folder, "master", "broker", "-c", conf)
    stack.callback(master.end, signal.SIGTERM)
    conf = broker_file(folder, "replica", names.address, "brokerRole=SLAVE", "brokerId=1", "slaveMetadataPush=true")
    replica = Server(folder, "replica", "broker", "-c", conf)
    stack.callback(replica.end, signal.SIGTERM)
    until(lambda: bool(send(names.address, range(1))), "the replica has joined")

    step(2, f"Send {MESSAGES} messages, one after the other.")
    began = time.perf_counter()
    acknowledged = send(names.address, range(1, MESSAGES + 1))
    console.print(f"   {len(acknowledged)} acknowledged in {time.perf_counter() - began:.1f} s")
    topics = folder / "replica" / "config" / "topics.json"
    until(lambda: topics.exists() and TOPIC in topics.read_text(), "the replica knows the topic")
    shell("replication", "status", "-n", names.address)

    step(3, "Kill the master, as a power cut would.", "kill -9")
    master.end(signal.SIGKILL)

    step(4, "Read everything from the replica.")
    found = {message.message_id for message in read_everything(names.address)}
    missing = [one for one in acknowledged if one not in found]
    console.print(f"   {len(found)} messages read, {len(missing)} acknowledged ones missing")
    if missing:
        raise SystemExit("acknowledged messages are missing on the replica")

    step(5, "Bring the master back, and send more.")
    master.start()
    more: list[str] = []
    took = until(lambda: bool(more.extend(send(names.address, range(10))) or len(more) >= 10), "sends go on")
    console.print(f"   the replica follows again; {len(more)} more acknowledged within {took:.1f} s")

    step(6, "The proof, over the wire while both run, and then on the files of both stores.")
    shell("admin", "verifyReplica", "-b", master.address, "-r", replica.address, "-n", names.address)
    replica.end(signal.SIGTERM)
    master.end(signal.SIGTERM)
    shell("store", "compare", str(folder / "master"), str(folder / "replica"))


def main() -> None:
    began = time.perf_counter()
    console.print(Panel("A log that always has a twin: replication and a master's death", style="bold blue"))
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as home, contextlib.ExitStack() as stack:
        show(Path(home), stack)
    console.print(
        f"\n[bold green]Done in {time.perf_counter() - began:.1f} s.[/] `twinlog cluster conf/2m-2s-sync` runs"
    )
    console.print("two such pairs until Ctrl-C.")


if __name__ == "__main__":
    main()
