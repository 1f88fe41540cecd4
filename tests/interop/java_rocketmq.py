"""Real Apache RocketMQ for tests: name servers, brokers and mqadmin, started from the released jars.

    rocketmq = JavaRocketmq("5.5.0")                                  # or "4.9.7"; skips where Java is missing
    with rocketmq.name_server(tmp_path / "ns") as names:
        with rocketmq.broker(tmp_path / "b", names.address, brokerName="broker-a") as broker:
            print(broker.address, broker.store)                       # 127.0.0.1:port, the store directory
            print(rocketmq.mqadmin("clusterList", "-n", names.address))
            broker.stop()                                             # SIGTERM, 12 to 15 s; leaving `with` is kill -9
        rocketmq.broker(tmp_path / "b", names.address)                # the same folder again: starts on the same store

By hand (until Ctrl-C), then any client or mqadmin against the printed address:
    python -m tests.interop.java_rocketmq start-cluster --version 5.5.0 [--set flushDiskType=SYNC_FLUSH] [--home DIR]
    python -m tests.interop.java_rocketmq mqadmin --version 5.5.0 -- clusterList -n 127.0.0.1:PORT
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.processes import Server, free_port
from tests.interop.toolchain import VERSIONS, java_command

# Both implementations read this: files small enough to roll in a test, and timers short enough to wait for.
TEST_CONF = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "4000",
    "transactionCheckInterval": "1000",
    "messageDelayLevel": "1s 2s " + " ".join(["1s"] * 16),
    "waitTimeMillsInSendQueue": "5000",
    "osPageCacheBusyTimeOutMills": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "deleteWhen": "04",
    "fileReservedTime": "72",
}
CLIENT_OPTIONS = ["-Drocketmq.client.rebalance.waitInterval=1000"]  # 20 s otherwise, and each retry topic waits for it
JAVA_CONF = {
    "mappedFileSizeTimerLog": str(4 << 20),
    "timerFlushIntervalMs": "10000",  # it goes through a wheel of 37 MB each time, once a second otherwise
    "brokerFastFailureEnable": "false",
    "transactionOpBatchInterval": "100",  # 3 s otherwise; a check in between asks about decided messages again
}

# 4.9.7 does not start without its logging files; 5.x has some of its own in the jar, which are slow and noisy.
LOGBACK = """<configuration><appender name="file" class="{shaded}ch.qos.logback.core.FileAppender">
<file>${{user.home}}/logs/{name}.log</file><encoder><pattern>%d %-5p %c{{0}} - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="file"/></root></configuration>
"""
LOGBACK_FILES = {
    "logback_namesrv": "",
    "logback_broker": "",
    "logback_tools": "",
    "rmq": "org.apache.rocketmq.logging.",
}


class NameServer(Server):
    """A name server process; `address` is what clients call namesrvAddr."""


class Broker(Server):
    """A broker process; `store` is its store directory, `conf` what it was started with."""

    store: Path
    conf: dict[str, str]


class JavaRocketmq:
    """One released version of Apache RocketMQ."""

    def __init__(
        self,
        version: str = VERSIONS[0],
        *,
        heap_mb: int = 512,
        jvm_options: tuple[str, ...] = (),
        before: Sequence[str] = (),
        env: Mapping[str, str] = {},
        host: str = "127.0.0.1",
    ) -> None:
        """`before` begins every command line, e.g. with a network namespace, in which it has the address `host`."""
        self.version, self.name = version, f"java-{version}"
        self._heap_mb, self._jvm_options = heap_mb, list(jvm_options)
        self._before, self._env, self._host = list(before), env, host

    def __repr__(self) -> str:
        return self.name

    def name_server(self, home: Path, *, port: int = 0) -> NameServer:
        port = port or free_port()
        conf = write_conf(home / "namesrv.conf", {"listenPort": str(port)})
        command = self._command("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf), home=home, heap_mb=256)
        ready = "Name Server boot success"
        return NameServer(command, home=home, port=port, ready=ready, env=self._env, host=self._host).wait_ready()

    def broker(self, home: Path, name_server: str, *, port: int = 0, registered: bool = True, **conf: str) -> Broker:
        """Start a broker on `home`/store, wait until it is ready and `registered`; extra keys go to its broker.conf."""
        own = {"brokerIP1": self._host, "brokerIP2": self._host}
        keys = broker_conf(home, name_server, port, JAVA_CONF | own | conf)
        file = write_conf(home / "broker.conf", keys)
        direct = "-XX:MaxDirectMemorySize=512m"
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = self._command(main, "-c", str(file), home=home, heap_mb=self._heap_mb, options=[direct])
        port = int(keys["listenPort"])
        broker = Broker(command, home=home, port=port, ready="boot success", env=self._env, host=self._host)
        broker.store, broker.conf = Path(keys["storePathRootDir"]), keys
        broker.wait_ready(150)
        return broker.wait_registered(name_server) if registered else broker

    def mqadmin(self, *args: str, seconds_max: float = 120) -> str:
        """What `mqadmin ARGS` prints. It costs a JVM start each time; `AdminRunner` runs many in one JVM."""
        with tempfile.TemporaryDirectory() as home:
            command = self._command("org.apache.rocketmq.tools.command.MQAdminStartup", *args, home=Path(home))
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_max)
        return done.stdout

    def run(self, main: str, *args: str, stdin: str = "", seconds_max: float = 300, home: Path | None = None) -> str:
        """Run one of our own programs of tests/interop/java to its end; its standard output."""
        with tempfile.TemporaryDirectory() as folder:
            command = self.client_command(main, *args, home=home or Path(folder))
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds_max)
        if done.returncode:
            printed = "\n".join([*done.stdout.splitlines()[-2:], *done.stderr.splitlines()[:20]])
            raise RuntimeError(f"{main} with the client of {self} ended with {done.returncode}:\n{printed}")
        return done.stdout

    def client_command(self, main: str, *args: str, home: Path) -> list[str]:
        """The command line of one of our own programs; its files go to `home`."""
        quiet = f"-Dlogback.configurationFile={home}/conf/logback_tools.xml"  # 4.9.7 logs to standard output otherwise
        return self._command(main, *args, home=home, options=[*CLIENT_OPTIONS, quiet])

    def _command(
        self, main: str, *args: str, home: Path, heap_mb: int = 256, options: list[str] | None = None
    ) -> list[str]:
        for folder in ("conf", "tmp"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        for name, shaded in LOGBACK_FILES.items():
            (home / "conf" / f"{name}.xml").write_text(LOGBACK.format(name=name.split("_")[-1], shaded=shaded))
        folders = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Drocketmq.client.logRoot={home}/logs"]
        folders.append(f"-Djava.io.tmpdir={home}/tmp")
        logging = f"-Drmq.logback.configurationFile={home}/conf/rmq.xml"
        alone = ["-Djava.net.preferIPv4Stack=true", logging, *folders, *(options or []), *self._jvm_options]
        return [*self._before, *java_command(self.version, main, *args, options=alone, heap_mb=heap_mb)]


def broker_conf(home: Path, name_server: str, port: int, extra: dict[str, str]) -> dict[str, str]:
    """The test configuration for a broker in `home`; a port of 0 means one with both neighbours free."""
    keys = TEST_CONF | {"namesrvAddr": name_server, "storePathRootDir": str(home / "store")} | extra
    keys["listenPort"] = str(port or free_port(beside=(-2, 1)))
    keys.setdefault("storePathCommitLog", f"{keys['storePathRootDir']}/commitlog")
    return keys


def write_conf(path: Path, keys: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.java_rocketmq")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start-cluster", help="a name server and one broker until Ctrl-C")
    start.add_argument("--version", default=VERSIONS[0], choices=VERSIONS)
    start.add_argument("--home", type=Path, help="a folder to keep; the default is a temporary one")
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of broker.conf")
    admin = commands.add_parser("mqadmin", help="one mqadmin command")
    admin.add_argument("--version", default=VERSIONS[0], choices=VERSIONS)
    admin.add_argument("args", nargs="+")
    options = parser.parse_args(argv)
    rocketmq = JavaRocketmq(options.version)
    if options.command == "mqadmin":
        sys.stdout.write(rocketmq.mqadmin(*options.args))
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())  # so that both servers end with us
    with tempfile.TemporaryDirectory() as folder:
        home = (options.home or Path(folder)).absolute()
        extra = dict(line.split("=", 1) for line in options.set)
        with (
            rocketmq.name_server(home / "namesrv") as names,
            rocketmq.broker(home / "broker", names.address, **extra) as b,
        ):
            print(
                f"RocketMQ {options.version}: name server {names.address}, broker {b.address}, store {b.store}",
                flush=True,
            )
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    main()
