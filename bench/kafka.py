"""A Kafka broker and Spark's Kafka connector, from Maven into the cache: the anchor of the Spark figures."""

from __future__ import annotations

import contextlib
import functools
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.interop.toolchain import COPY_GOAL, cache_directory, find_tool

KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"
# The token provider of 4.2 is not on Maven Central; that of the preview before it has the same classes.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
_CLUSTER_ID = "twinlog-bench-cluster0"
_READY_SECONDS = 60


@functools.cache
def broker_jars() -> Path:
    """The broker's jars with all they need."""
    return _fetched("broker", (KAFKA,), transitive=True)


@functools.cache
def connector_jars() -> str:
    """The connector's jars, as spark.jars takes them."""
    return ",".join(str(path) for path in sorted(_fetched("connector", CONNECTOR, transitive=False).glob("*.jar")))


def _fetched(name: str, artifacts: tuple[str, ...], *, transitive: bool) -> Path:
    library = cache_directory() / "kafka" / name
    if library.is_dir():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        Path(work, "pom.xml").write_text(_pom(artifacts, transitive))
        command = [find_tool("mvn"), "-q", "-B", COPY_GOAL, "-DoutputDirectory=lib", "-DincludeScope=runtime"]
        subprocess.run(command, cwd=work, check=True, timeout=900, stdout=subprocess.DEVNULL)
        Path(work, "lib").rename(library)
    return library


def _pom(artifacts: tuple[str, ...], transitive: bool) -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = ""
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        wanted += (
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{'' if transitive else alone}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>twinlog</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


@contextlib.contextmanager
def kafka(home: Path) -> Iterator[tuple[str, int]]:
    """A broker with its defaults on loopback: its address and its process."""
    home.mkdir(parents=True)
    port, controller = _free_port(), _free_port()
    conf = home / "server.properties"
    conf.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={home / 'logs'}\nnum.partitions=8\noffsets.topic.replication.factor=1\n"
    )
    classpath = f"{broker_jars()}/*"
    java = [find_tool("java"), "-Xmx1g", "-XX:+UseG1GC", "-cp", classpath]
    with (home / "log").open("w") as log:
        formatted = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(conf)]
        subprocess.run(formatted, check=True, stdout=log, stderr=log, timeout=60)
        process = subprocess.Popen([*java, "kafka.Kafka", str(conf)], stdout=log, stderr=log)
    try:
        _wait_for(port, process, home / "log")
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise RuntimeError(f"Kafka did not start:\n{log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
