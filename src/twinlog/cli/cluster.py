"""`twinlog cluster FOLDER`: a name server and the brokers of a folder as child processes, until a signal stops them.

FOLDER holds `namesrv.conf` and one `*.properties` file per broker, as RocketMQ's own samples do. Relative
paths in these files are below the data directory. If the brokers have automatic failover (failoverEtcd), the etcd that
answers there is used; else one is started, below the data directory too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from twinlog.base.addresses import Address, parse_address
from twinlog.base.safe_files import make_directory
from twinlog.cli.shared.running import LogJson, LogLevel, fail, print_ready, run_service, start_logging
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.errors import SettingsError
from twinlog.settings.nameserver_conf import load_nameserver_conf

NAME_SERVER_FILE = "namesrv.conf"
_STOP_S_MAX = 30.0
_ETCD_POLL_S = 0.2
_RESTART_S = 10.0
_FIRST = ("etcd", "namesrv")  # started before the brokers, in this order


class ClusterFailed(Exception):
    """A server did not start or ended by itself; the others were stopped."""


@dataclass(frozen=True, slots=True)
class Server:
    """One child process."""

    name: str
    arguments: tuple[str, ...]  # of its `twinlog` command
    etcd: Address | None = None  # instead: this is etcd, which is to listen here


def cluster(
    folder: Annotated[Path, typer.Argument(help="Holds namesrv.conf and a .properties file per broker.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep stores here; default: ~/twinlog/FOLDER.")
    ] = None,
    log_level: LogLevel = "warning",
    log_json: LogJson = False,
) -> None:
    """Run all servers of a folder; Ctrl-C stops them, each cleanly."""
    start_logging(log_level, log_json)
    where = (data or Path.home() / "twinlog" / folder.resolve().name).absolute()
    try:
        servers = plan_servers(folder.absolute(), ("--log-level", log_level, *(("--log-json",) if log_json else ())))
        make_directory(where)
    except (SettingsError, ClusterFailed, OSError) as problem:
        fail(problem)
    run_service(lambda metrics: ClusterService(servers, where), expected=(ClusterFailed,))


def plan_servers(folder: Path, options: Sequence[str] = ()) -> list[Server]:
    """The servers of a folder, the name server first; SettingsError for a wrong file, before anything starts."""
    names = folder / NAME_SERVER_FILE
    brokers = sorted(folder.glob("*.properties"))
    if not names.is_file() or not brokers:
        raise ClusterFailed(f"{folder} does not hold {NAME_SERVER_FILE} and *.properties files; see conf/2m-2s-sync")
    load_nameserver_conf(names)
    endpoints = {one for path in brokers for one in load_broker_conf(path).failover.endpoints}
    etcd = plan_etcd([parse_address(one) for one in sorted(endpoints)])
    return [
        *etcd,
        Server("namesrv", ("namesrv", "-c", str(names), *options)),
        *(Server(path.stem, ("broker", "-c", str(path), *options)) for path in brokers),
    ]


def plan_etcd(endpoints: Sequence[Address], find: Callable[[str], str | None] = shutil.which) -> list[Server]:
    """The etcd to start, if the brokers need one and none answers; ClusterFailed when none is installed."""
    if not endpoints or any(_answers(one) for one in endpoints):
        return []
    program = find("etcd")
    if program is None:
        raise ClusterFailed(
            f"these brokers need etcd, none answers at {endpoints[0]}, and none is installed: `apt-get install "
            "etcd-server` (Debian, Ubuntu), `brew install etcd` (macOS), or https://etcd.io"
        )
    return [Server("etcd", _etcd_command(program, endpoints[0]), endpoints[0])]


def _etcd_command(program: str, client: Address) -> tuple[str, ...]:
    url, peer_url = f"http://{client}", f"http://{Address(client.host, client.port + 1)}"
    options = {
        "--data-dir": "etcd",
        "--logger": "zap",
        "--log-level": "error",
        "--listen-client-urls": url,
        "--advertise-client-urls": url,
        "--listen-peer-urls": peer_url,
        "--initial-advertise-peer-urls": peer_url,
        "--initial-cluster": f"default={peer_url}",
        "--auto-compaction-mode": "periodic",  # brokers under load write a key a second each; old values fill its disk
        "--auto-compaction-retention": "1h",
    }
    return (program, *(f"{key}={value}" for key, value in options.items()))


def _answers(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=_ETCD_POLL_S).close()
    except OSError:
        return False
    return True


class ClusterService:
    """Runs the servers until cancelled, or until one of them fails.

    A server that somebody kills is started again after a while, as a service manager would: so a failover can be tried.
    """

    def __init__(self, servers: Sequence[Server], data: Path) -> None:
        self._servers = servers
        self._data = data
        self._width = max(len(server.name) for server in servers)
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> None:
        brokers = [server for server in self._servers if server.name not in _FIRST]
        first = [server for server in self._servers if server.name in _FIRST]
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in (*([one] for one in first), brokers):
                    started = [asyncio.Event() for _ in group]
                    for server, event in zip(group, started, strict=True):
                        tasks.create_task(self._serve(server, event), name=server.name)
                    await asyncio.gather(*(event.wait() for event in started))
                print_ready(f"twinlog cluster ready: {len(brokers)} brokers, data in {self._data}")
        except* ClusterFailed as failed:
            raise failed.exceptions[0] from None
        finally:
            await self._stop_all()

    async def _serve(self, server: Server, started: asyncio.Event) -> None:
        while (status := await self._run_once(server, started)) < 0 and started.is_set():
            text = f"killed by {signal.Signals(-status).name}; starts again in {_RESTART_S:g} s"
            print(f"{server.name:{self._width}} | {text}", flush=True)
            await asyncio.sleep(_RESTART_S)
            started = asyncio.Event()
        raise ClusterFailed(f"{server.name} ended with status {status}; its last lines are above")

    async def _run_once(self, server: Server, started: asyncio.Event) -> int:
        """Start it and print what it prints; its exit status, below 0 for a signal."""
        command = server.arguments if server.etcd else (sys.executable, "-m", "twinlog.cli.main", *server.arguments)
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._data,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only; each child gets one SIGTERM
        )
        self._running[server.name] = process
        if server.etcd is not None:
            await self._until_etcd_answers(server.etcd, process, started)
        await self._print_output(server, process, started)
        return await process.wait()

    async def _print_output(self, server: Server, process: asyncio.subprocess.Process, started: asyncio.Event) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            text = line.decode(errors="replace").rstrip()
            print(f"{server.name:{self._width}} | {text}", flush=True)
            if text.startswith("twinlog ") and " ready " in text:
                started.set()

    async def _until_etcd_answers(
        self, address: Address, process: asyncio.subprocess.Process, started: asyncio.Event
    ) -> None:
        while process.returncode is None and not await asyncio.to_thread(_answers, address):  # noqa: ASYNC110
            await asyncio.sleep(_ETCD_POLL_S)
        if process.returncode is None:
            print(f"{'etcd':{self._width}} | etcd ready on {address}", flush=True)
            started.set()

    async def _stop_all(self) -> None:
        """Brokers first, so that they can unregister from the name server; etcd last."""
        names = [server.name for server in self._servers]
        for group in ([name for name in names if name not in _FIRST], *([name] for name in reversed(_FIRST))):
            alive = [self._running[name] for name in group if name in self._running]
            await asyncio.gather(*(_stop(process) for process in alive if process.returncode is None))


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_S_MAX):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
