"""`make demo`, last part: the messages of a broker and its replica become a table, an audit and an answer, on Spark."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import tempfile
import time
from pathlib import Path

from demo_steps import Server, broker_file, console, shell, step, until
from rich.panel import Panel
from rich.table import Table

from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.spark.session import start
from twinlog.spark.start_noise import without_start_noise

TOPIC = "TeaOrders"
CUPS = 20_000
DRINKS = {"green tea": 3, "black tea": 2, "mint tea": 4}
QUESTION = """
SELECT tags AS drink, count(*) AS cups, sum(get_json_object(decode(body, 'UTF-8'), '$.price')) AS earned
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


def ask(archive: Path) -> None:
    """The question, as SQL over the files of the archive."""
    with without_start_noise():
        spark = start("demo", conf={"spark.log.level": "ERROR"})
    try:
        spark.read.parquet(str(archive)).createOrReplaceTempView("messages")
        answer = spark.sql(QUESTION)
        table = Table(*answer.columns)
        for row in answer.collect():
            table.add_row(*(f"{value:,.0f}" if isinstance(value, int | float) else str(value) for value in row))
        console.print(table)
    finally:
        spark.stop()


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

    step(4, "Ask: which tea earns most?")
    console.print(f"[dim]{QUESTION.strip()}[/]")
    ask(archive)


def main() -> None:
    began = time.perf_counter()
    console.print(Panel("The data pipeline: archive, audit, and a question in SQL", style="bold blue"))
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as home, contextlib.ExitStack() as stack:
        show(Path(home), stack)
    console.print(f"\n[bold green]Done in {time.perf_counter() - began:.1f} s.[/] docs/spark.md has all the jobs.")


if __name__ == "__main__":
    main()
