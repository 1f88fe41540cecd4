"""Delta: the build for a version of Spark, the settings of a session, and what a table's log shows as added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.layout import TopicTotals

# A build of Delta runs on one minor version of Spark; on the next one a method is missing and it fails.
DELTA_BUILDS = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
_PACKAGES = "spark.jars.packages"
_NEEDED = {
    # Of all its dependencies, only delta-storage is needed and not in Spark.
    "spark.jars.excludes": ",".join(
        f"{group}:*" for group in ("org.*", "com.*", "commons-*", "javax.*", "io.airlift", "io.unitycatalog")
    )
    + ",io.delta:delta-kernel*",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def delta_conf(spark_version: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session that reads and writes Delta; the user's settings override ours."""
    packages = given.get(_PACKAGES, "")
    if "delta-spark" in packages + given.get("spark.jars", ""):  # the user chose a build
        return {**_NEEDED, **given}
    build = DELTA_BUILDS.get(".".join(spark_version.split(".")[:2]))
    if build is None:
        raise BadOption(
            f"no build of Delta is known for Spark {spark_version}: pip install 'twinlog[delta]' installs a Spark that "
            f"has it ({', '.join(DELTA_BUILDS)}); or use the format parquet, or name a build: {_PACKAGES}=io.delta:..."
        )
    return {**_NEEDED, **given, _PACKAGES: ",".join(filter(None, (packages, build)))}


def delta_version(root: Path) -> int:
    """The newest version in the table's log; -1 if there is no table."""
    return max(_versions(root), default=-1)


def delta_added(root: Path, after: int) -> dict[str, TopicTotals]:
    """What was added to each topic after version `after`, from the table's log."""
    topics: dict[str, TopicTotals] = {}
    for version, path in sorted(_versions(root).items()):
        if version <= after:
            continue
        for line in path.read_text().splitlines():
            added = json.loads(line).get("add")
            if added:
                topic = added["partitionValues"]["topic"]
                rows = json.loads(added.get("stats") or "{}").get("numRecords", 0)
                topics[topic] = topics.get(topic, TopicTotals()) + TopicTotals(rows, 1, added["size"])
    return topics


def _versions(root: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in (root / "_delta_log").glob("*.json") if path.stem.isdigit()}
