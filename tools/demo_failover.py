"""`make demo`, third part: three brokers and etcd; the master dies, and another one takes over by itself."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from demo_steps import TWINLOG, Server, broker_file, console, free_port, shell, step, until
from rich.panel import Panel

from twinlog.client import ClientError, NetError, Outgoing, SendStatus
from twinlog.client.sync import Producer

TOPIC = "Ledger"


def start_etcd(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
    words = [program, "--data-dir", str(folder / "etcd"), "--logger", "zap", "--log-level", "error"]
    words += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url]
    words += ["--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), f"127.0.0.1:{port}"


def leader(etcd: str) -> str | None:
    """The address of the master, as etcd has it."""
    done = subprocess.run([*TWINLOG, "failover", "list", "--etcd", etcd, "--json"], capture_output=True, text=True)
    groups = json.loads(done.stdout) if done.returncode == 0 else []
    return groups[0]["leader"]["address"] if groups and groups[0]["leader"] else None


def sends(producer: Producer, count: int) -> bool:
    try:
        results = [producer.send(Outgoing(TOPIC, f"entry {number}")) for number in range(count)]
    except (ClientError, NetError):
        return False
    return all(result.status is SendStatus.OK for result in results)


def show(program: str, folder: Path, stack: contextlib.ExitStack) -> None:
    step(1, "etcd, a name server, and three brokers of one name: etcd decides which one is master.")
    process, etcd = start_etcd(program, folder)
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)
    names = Server(folder, "namesrv", "namesrv", "--port", "0")
    stack.callback(names.end, signal.SIGTERM)
    brokers: dict[str, Server] = {}
    for number in (1, 2, 3):
        lines = ("brokerRole=SLAVE", f"brokerId={number}", f"failoverEtcd={etcd}", "inSyncReplicas=2")
        conf = broker_file(folder, f"broker-{number}", names.address, *lines)
        broker = Server(folder, f"broker-{number}", "broker", "-c", conf)
        stack.callback(broker.end, signal.SIGTERM)
        brokers[broker.address] = broker
    with Producer(names.address, "bank") as producer:
        until(lambda: sends(producer, 1), "a master is elected", 60)
        sends(producer, 500)
        shell("failover", "list", "--etcd", etcd)
        master = leader(etcd)
        assert master is not None

        step(2, "Kill the master, as a power cut would, and go on sending.", "kill -9")
        brokers[master].end(signal.SIGKILL)
        took = until(lambda: sends(producer, 1), "sends go on", 60)
        console.print(f"   the next acknowledged send came after {took:.1f} s")
        shell("failover", "history", "--etcd", etcd)

        step(3, "Bring the old master back: it follows the new one by itself.")
        brokers[master].start()
        until(lambda: sends(producer, 50), "sends go on", 60)
        shell("failover", "list", "--etcd", etcd)


def main() -> None:
    program = shutil.which("etcd")
    if program is None:
        console.print("Automatic failover is not shown: etcd is not installed (Debian: apt-get install etcd-server).")
        return
    began = time.perf_counter()
    console.print(Panel("Somebody takes over: automatic failover on etcd", style="bold blue"))
    with tempfile.TemporaryDirectory(prefix="twinlog-demo-") as home, contextlib.ExitStack() as stack:
        show(program, Path(home), stack)
    console.print(
        f"\n[bold green]Done in {time.perf_counter() - began:.1f} s.[/] `twinlog cluster conf/3r-failover` runs it."
    )


if __name__ == "__main__":
    main()
