"""HDFS in one process of Java: a name node and a data node of the Hadoop that PySpark carries."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop import toolchain

VERSION = "3.5.0"
_JARS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
    # Its cluster is a test's helper, and uses these.
    "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.mockito:mockito-core:5.14.2",
)
_START_S = 120


@contextmanager
def mini_hdfs(home: Path) -> Iterator[str]:
    """The address of a new HDFS."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    library = toolchain.library_of("hadoop", VERSION, *_JARS)  # about 110 MB
    java = [toolchain.find_tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx400m"]
    manager = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
    words = ["-nomr", "-format", "-nnport", str(port), "-writeConfig", str(home / "conf.xml")]
    with (home / "hdfs.log").open("wb") as log:
        process = subprocess.Popen([*java, "-cp", f"{library}/*", manager, *words], cwd=home, stdout=log, stderr=log)
    try:
        limit = time.monotonic() + _START_S
        while not (home / "conf.xml").exists():  # written when the cluster serves
            assert process.poll() is None and time.monotonic() < limit, (home / "hdfs.log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"hdfs://localhost:{port}"
    finally:
        process.kill()
        process.wait()
