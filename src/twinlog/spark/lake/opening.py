"""Opens the lake of an address, with the settings of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.lake.s3_settings import NAMES, PREFIX, SECRETS, GetSetting, s3_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUCKETS = f"{PREFIX}bucket."


def open_lake(spark: SparkSession, address: Address) -> Lake:
    """In the driver. A bucket is opened with the session's settings as they are now."""
    if address.is_local or address.scheme == "s3a":
        return open_anywhere(address, session_settings(spark))
    if _context(spark) is None:
        hint = "use s3a:// or a local path, or run the job where the session's JVM is"
        raise BadOption(f"{address}: Spark Connect has no way to Hadoop's file systems; {hint}")
    from twinlog.spark.lake.hadoop_lake import HadoopLake

    return HadoopLake(spark, address)


def open_anywhere(address: Address, get: GetSetting) -> Lake:
    """In any process: local paths and buckets, without a JVM."""
    if address.is_local:
        return LocalLake(address)
    if address.scheme != "s3a":
        raise BadOption(f"{address}: a process without a JVM writes to s3a:// and local paths only; give one of these")
    from twinlog.spark.lake.s3_lake import S3Lake

    return S3Lake(address, s3_settings(get, address.authority))


def session_settings(spark: SparkSession) -> GetSetting:
    """The session's Hadoop settings: of its files, spark.hadoop.* and what was set since."""
    session: Any = spark
    if _context(spark) is None:
        given = session.conf.getAll
        return lambda key: given.get(key) or given.get(f"spark.hadoop.{key}")
    conf = session._jsparkSession.sessionState().newHadoopConf()

    def get(key: str) -> str | None:
        if key.endswith(SECRETS):  # may be in a credential provider of Hadoop, encrypted
            found = conf.getPassword(key)
            return None if found is None else "".join(found)
        return conf.get(key)

    return get


def picked_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of S3A as a mapping, for a process that has no session."""
    get, session = session_settings(spark), spark
    buckets: Any = {}
    if _context(spark) is not None:
        buckets = cast("Any", session)._jsparkSession.sessionState().newHadoopConf().getPropsWithPrefix(_BUCKETS)
    names = [*(f"{PREFIX}{name}" for name in NAMES), *(f"{_BUCKETS}{key}" for key in buckets)]
    return {name: value for name in names if (value := get(name))}


def _context(spark: SparkSession) -> Any:
    """The session's context; None under Spark Connect."""
    try:
        return spark.sparkContext
    except Exception:  # the error of a Connect session is not a class of Python's Spark
        return None
