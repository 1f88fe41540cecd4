"""The topics of a cluster, and the metadata of its brokers, as views of a session.

PySpark 4.2 lets Python add data sources but no catalog, so `SHOW VIEWS` lists what `register_views` made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, cluster_options
from twinlog.spark.errors import BadOption
from twinlog.spark.option_values import OptionValues
from twinlog.spark.schema import LIVE_COLUMNS, MESSAGE_COLUMNS, METADATA_KINDS, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUOTE = "`"


def register_views(
    spark: SparkSession, nameServer: str, *, prefix: str = "", pattern: str = ".*", **options: str
) -> list[str]:
    """Make a temporary view for each topic whose name matches `pattern`, and one for each table of metadata.

    Returns their names. A view is a snapshot, as a frame is: call this again to see newer messages and new topics.
    Credentials, TLS and time limits are options as for reads; dots in their names are written as two underscores.
    """
    given = {"nameServer": nameServer, **{name.replace("__", "."): value for name, value in options.items()}}
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadOption(f"pattern {pattern!r} is not a regular expression: {error}") from error
    cluster = Cluster(cluster_options(OptionValues(given, known=CLUSTER_OPTIONS)))
    tables = {kind: (ddl(LIVE_COLUMNS[kind]), {"kind": kind}) for kind in METADATA_KINDS}
    columns = ddl(MESSAGE_COLUMNS)
    topics = {topic: (columns, {"topic": topic}) for topic in cluster.topics_like(pattern)}
    _check_names([*tables, *topics])
    for name, (schema, chosen) in {**tables, **topics}.items():
        reader = spark.read.schema(schema).format("rocketmq").options(**given, **chosen)
        reader.load().createOrReplaceTempView(_quoted(prefix + name))
    return [prefix + name for name in (*tables, *topics)]


def _check_names(names: list[str]) -> None:
    """BadOption if two views would have the same name: Spark does not distinguish Orders and orders."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise BadOption(f"{other!r} and {name!r} would be one view: leave one of them out with pattern")


def _quoted(name: str) -> str:
    return _QUOTE + name.replace(_QUOTE, _QUOTE * 2) + _QUOTE
