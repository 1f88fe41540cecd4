"""The map of a restore as a table: replaced as a whole, wherever it is kept.

A local one is a directory that takes the place of the old one in one step. On a lake `_map.json` names the files that
count; it is replaced in one step, and the old files are removed after it.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.atomic_directory import replace_directory
from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address, parse_address
from twinlog.spark.lake.lake import Lake, in_parallel
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.lake.spark_tables import read_table, stage_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "_map.json"


def read_map(spark: SparkSession, path: str | Path | Address) -> DataFrame:
    """Old and new offset of every message that was restored."""
    place = parse_address(path, "map")
    if place.is_local:
        return spark.read.parquet(str(place))
    lake = open_lake(spark, place)
    names = _names(lake)
    if not names:
        raise BadOption(f"there is no map of a restore in {place}: give the --map that a restore wrote")
    return read_table(spark, lake, names)


def replace_map(spark: SparkSession, table: DataFrame, place: Address) -> DataFrame:
    """Keep this map instead of the one that is there; returns it as it was kept."""
    if place.is_local:
        path = place.local
        aside = path.with_name(f"{path.name}.new")
        table.write.mode("overwrite").parquet(str(aside))
        replace_directory(path, aside)
        return read_map(spark, place)
    lake = open_lake(spark, place)
    old, run, staged = _names(lake), uuid.uuid4().hex, sorted(stage_table(table, lake))
    moves = [(one, f"map-{run}-{number:05d}.parquet") for number, one in enumerate(staged)]
    in_parallel(lambda move: lake.move(*move), moves)
    lake.write(_FILES, json.dumps([new for _, new in moves]).encode())
    # Only what this run staged: others may stage files there too, an archive whose directory was given, for example.
    folders = {one.rpartition("/")[0] for one in staged}
    lake.delete([*old, *(entry.name for folder in folders for entry in lake.list(f"{folder}/"))])
    return read_map(spark, place) if moves else table.limit(0)


def _names(lake: Lake) -> list[str]:
    data = lake.read(_FILES)
    return [] if data is None else json.loads(data)
