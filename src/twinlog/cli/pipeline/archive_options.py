"""Options of `twinlog pipeline archive` and `twinlog pipeline compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from twinlog.cli.pipeline.options import name_server_option

Target = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A directory that the driver and all workers can access.")
]
Compression = Annotated[str, typer.Option("--compression", help="snappy, zstd, lz4, gzip or none.")]
NameServer = Annotated[  # its variable counts only if no store is given
    str | None, name_server_option("Archive topics of a cluster; default: $NAMESRV_ADDR, without --store.", None)
]
Store = Annotated[
    list[str] | None, typer.Option("--store", metavar="DIR", help="Archive a store directory; may be repeated.")
]
Topic = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="Topics, with commas or repeated; all by default.")
]
Pattern = Annotated[str | None, typer.Option("--pattern", help="A regular expression for whole topic names.")]
Format = Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="Run until Ctrl-C, with a batch every 10s, 1m, ..."),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", help="Columns to keep, with commas; those that identify a message are always kept."),
]
RowsPerBatch = Annotated[int | None, typer.Option("--rows-per-batch", min=1, help="At most this many messages.")]
BytesPerBatch = Annotated[
    str | None,
    typer.Option("--bytes-per-batch", metavar="SIZE", help="At most this much of a store's log, for example 512m."),
]
Parse = Annotated[
    str | None,
    typer.Option(
        "--parse",
        metavar="KIND=SCHEMA",
        help="Columns from bodies, in a table format: json='id bigint, name string' (or a file of that), "
        "avro=FILE, protobuf=FILE:MESSAGE.",
    ),
]
ParseInto = Annotated[
    str | None, typer.Option("--parse-into", metavar="COLUMN", help="One column for all that is parsed.")
]
Unparsed = Annotated[
    str | None,
    typer.Option(
        "--unparsed", metavar="ARCHIVE", help="The table of rows that do not parse; default: ARCHIVE_unparsed."
    ),
]
Catalog = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="KEY=VALUE,...",
        help="The catalog of an Iceberg table, as pyiceberg names it: type=rest,uri=http://... or name=prod.",
    ),
]
TableName = Annotated[
    str | None, typer.Option("--table", metavar="NAMESPACE.NAME", help="The table's name in the catalog.")
]
Before = Annotated[
    str | None, typer.Option("--before", metavar="DAY", help="Only days before this one; default: today (UTC).")
]
FileMb = Annotated[int, typer.Option("--file-mb", min=1, help="Size of the new files.")]
