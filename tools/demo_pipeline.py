"""`make demo`, last part: on Spark, messages become a table and an audit, and a broker is followed until it is gone."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from demo_steps import TWINLOG, Server, broker_file, console, shell, step, until
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.spark.jobs.sync_status import load_status
from twinlog.spark.session import start
from twinlog.spark.start_noise import without_start_noise

TOPIC = "TeaOrders"
CUPS = 20_000
DRINKS = {"green tea": 3, "black tea": 2, "mint tea": 4}
QUESTION = """
SELECT tags AS drink, count(*) AS cups,
       sum(get_json_object(decode(body, 'UTF-8'), '$.price')) AS earned
FROM messages GROUP BY tags ORDER BY earned DESC
"""


def order(number: int, drink: str) -> Outgoing:
    body = json.dumps({"cup": number, "price": DRINKS[drink]})
    return Outgoing(TOPIC, body, tags=drink.replace(" ", "-"), keys=f"cup-{number}")


def send_orders(names: str) -> None:
    drinks = itertools.cycle(DRINKS)
    with Producer(names, "bar") as producer:
        for begin in range(0, CUPS, 500):
            producer.send_batch([order(number, next(drinks)) for number in range(begin, begin + 500)])


BEFORE = """
SELECT date_format(seenAt, 'HH:mm:ss') AS seen,
       get_json_object(oldValue, '$.readQueueNums') AS queues_before,
       get_json_object(newValue, '$.readQueueNums') AS queues_after
FROM changes WHERE broker = 'broker-a' AND kind = 'topics' AND key = 'TeaOrders'
ORDER BY seenAt, sequence
"""


def ask(tables: Mapping[str, Path], questions: Mapping[str, str]) -> None:
    """The questions, as SQL over the files of the archive and of the history."""
    with without_start_noise():
        spark = start("demo", conf={"spark.log.level": "ERROR"})
    try:
        for name, path in tables.items():
            spark.read.parquet(str(path)).createOrReplaceTempView(name)
        for title, question in questions.items():
            console.print(f"   {title}")
            console.print(f"[dim]{question.strip()}[/]")
            answer = spark.sql(question)
            table = Table(*answer.columns)
            for row in answer.collect():
                table.add_row(*(f"{value:,.0f}" if isinstance(value, int | float) else str(value) for value in row))
            console.print(table)
    finally:
        spark.stop()


def follow(folder: Path, names: str, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    """`pipeline sync` beside everything else, until it is stopped."""
    words = ["pipeline", "sync", "-n", names, "--to", str(folder / "copies"), "--every", "2s"]
    console.print(Text(f"   $ twinlog {' '.join(words)} &", "dim"))
    with (folder / "sync.log").open("wb") as log:
        running = subprocess.Popen([*TWINLOG, *words], stdout=log, stderr=log, cwd=folder)
    stack.callback(running.wait)
    stack.callback(running.kill)
    until(lambda: running.poll() is not None or is_in_step(folder), "the copy is in step", 120)
    if running.poll() is not None:
        raise SystemExit(f"the synchronisation ended:\n{(folder / 'sync.log').read_text()}")
    return running


def is_in_step(folder: Path) -> bool:
    status = load_status(folder / "copies")
    return status is not None and bool(status.brokers) and all(one.lag_bytes == 0 for one in status.brokers)


def has_changed(folder: Path, word: str) -> bool:
    return word in (folder / "copies" / "broker-a" / "config" / "topics.json").read_text()


def show(folder: Path, stack: contextlib.ExitStack) -> None:
    step(1, f"A master and its replica again, and {CUPS:,} orders of tea.")
    names = Server(folder, "namesrv", "namesrv", "--port", "0")
    stack.callback(names.end, signal.SIGTERM)
    servers = {}
    for name, lines in (("master", ()), ("replica", ("brokerRole=SLAVE", "brokerId=1", "slaveMetadataPush=true"))):
        servers[name] = Server(folder, name, "broker", "-c", broker_file(folder, name, names.address, *lines))
        stack.callback(servers[name].end, signal.SIGTERM)
    send_orders(names.address)
    topics = folder / "replica" / "config" / "topics.json"
    until(lambda: topics.exists() and TOPIC in topics.read_text(), "the replica knows the topic")

    step(2, "Archive what the broker holds: Parquet files, every message once, however often this is stopped.")
    archive = folder / "archive"
    shell("pipeline", "archive", str(archive), "-n", names.address, "-t", TOPIC, live=True)

    step(3, "Audit: is the replica the master's twin, message by message and setting by setting?")
    shell("pipeline", "audit", servers["master"].address, servers["replica"].address, "-n", names.address, live=True)

    step(4, "Synchronise: one job copies every master, its log and its metadata, every two seconds.")
    running = follow(folder, names.address, stack)
    shell("pipeline", "status", str(folder / "copies"))

    step(5, "A topic changes: TeaOrders gets 16 queues. The copy follows, and remembers what was before.")
    master = servers["master"]
    shell("admin", "updateTopic", "-n", names.address, "-b", master.address, "-t", TOPIC, "-r", "16", "-w", "16")
    until(lambda: has_changed(folder, '"readQueueNums":16'), "the copy has the change")
    running.send_signal(signal.SIGTERM)
    running.wait(60)

    step(6, "Ask, in SQL: messages and metadata are tables.")
    questions = {"Which tea earns most?": QUESTION, "What was the topic before?": BEFORE}
    ask({"messages": archive, "changes": folder / "copies" / "_history" / "changes"}, questions)

    step(7, "Both brokers are lost with their disks. A broker starts on the copy and serves it.")
    for server in servers.values():
        server.end(signal.SIGKILL)
    place = "copies/broker-a"
    servers["copy"] = Server(folder, "copy", "broker", "-c", broker_file(folder, place, names.address))
    stack.callback(servers["copy"].end, signal.SIGTERM)
    shell("admin", "queryMsgByKey", "-n", names.address, "-t", TOPIC, "-k", f"cup-{CUPS - 1}")


def main() -> None:
    began = time.perf_counter()
    console.print(Panel("The data pipeline: archive, audit, synchronisation, and questions in SQL", style="bold blue"))
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as home, contextlib.ExitStack() as stack:
        show(Path(home), stack)
    console.print(f"\n[bold green]Done in {time.perf_counter() - began:.1f} s.[/] docs/spark.md has all the jobs.")


if __name__ == "__main__":
    main()
