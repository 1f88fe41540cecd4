"""`twinlog pipeline versions` and `twinlog pipeline expire`: the past of a Delta or Iceberg archive, without Spark."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.pipeline import archive_options as option
from twinlog.cli.pipeline.option_values import catalog_options
from twinlog.cli.pipeline.options import AsJson, SparkConf
from twinlog.cli.pipeline.running import report_failures, setting
from twinlog.cli.shared.running import fail

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.tables.table import TablePlace

OlderThan = Annotated[
    str,
    typer.Option("--older-than", metavar="TIME", help="Versions that were replaced longer ago than this: 7d, 36h."),
]
_UNITS_S = {"h": 3600, "d": 86400}


def versions(
    target: option.Target,
    catalog: option.Catalog = None,
    table: option.TableName = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a Delta or Iceberg archive that can still be read, oldest first."""
    with report_failures():
        from twinlog.spark.jobs.archive.tables.read_tables import existing_table

        found = existing_table(_place(target, catalog, table, conf)).versions()
    if as_json:
        json.dump([one._asdict() for one in found], sys.stdout)
        print()
        return
    shown = Table("version", "time (UTC)", "operation", title=target, title_justify="left")
    for name in ("batch", "rows", "files"):
        shown.add_column(name, justify="right")
    for one in found:
        time = datetime.fromtimestamp(one.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        batch = "" if one.batch is None else str(one.batch)
        shown.add_row(str(one.version), time, one.operation, batch, f"{one.rows_added:,}", f"{one.files_added:,}")
    Console().print(shown)


def expire(
    target: option.Target,
    older_than: OlderThan = "7d",
    catalog: option.Catalog = None,
    table: option.TableName = None,
    conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Remove versions of a Delta or Iceberg archive that were replaced long ago, and files that no version needs.

    The newest version stays whole. A reader of an older one has the given time to finish.
    """
    with report_failures():
        from twinlog.spark.jobs.archive.tables.expire import expire_table

        place = _place(target, catalog, table, conf)
        done = expire_table(place, _seconds(older_than), wall_clock_ms())
    if as_json:
        json.dump(asdict(done), sys.stdout)
        print()
        return
    print(
        f"{done.target}: {done.versions} versions and {done.files} files of {done.bytes:,} bytes removed, "
        f"{done.versions_left} versions left"
    )


def _place(target: str, catalog: list[str] | None, table: str | None, conf: list[str] | None) -> TablePlace:
    from twinlog.spark.errors import BadOption
    from twinlog.spark.jobs.archive.lakes.job import existing_header
    from twinlog.spark.jobs.archive.layout import TABLE_FORMATS
    from twinlog.spark.jobs.archive.tables.table import TablePlace
    from twinlog.spark.lake.address import parse_address
    from twinlog.spark.lake.opening import open_anywhere

    settings = {key.removeprefix("spark.hadoop."): value for key, value in map(setting, conf or ())}
    lake = open_anywhere(parse_address(target, "archive"), settings.get)
    found = existing_header(lake)
    if found.format not in TABLE_FORMATS:
        raise BadOption(f"{target} is a {found.format} archive, which keeps no versions: only Delta and Iceberg do")
    return TablePlace(found.format, lake, catalog_options(catalog), table or "")


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _UNITS_S:
        fail(f"--older-than {text!r} is not a time: write for example 7d or 36h")
    return int(number) * _UNITS_S[unit]
