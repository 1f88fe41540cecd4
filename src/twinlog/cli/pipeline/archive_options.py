"""Options of `twinlog pipeline archive` and `twinlog pipeline compact`."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[
    str, typer.Argument(metavar="ARCHIVE", help="A directory that the driver and all workers can access.")
]
Compression = Annotated[str, typer.Option("--compression", help="snappy, zstd, lz4, gzip or none.")]
NameServer = Annotated[
    str | None, typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT;...", help="Archive topics of a cluster.")
]
Store = Annotated[
    list[str] | None, typer.Option("--store", metavar="DIR", help="Archive a store directory; may be repeated.")
]
Topic = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="Topics, with commas or repeated; all by default.")
]
Pattern = Annotated[str | None, typer.Option("--pattern", help="A regular expression for whole topic names.")]
Format = Annotated[str, typer.Option("--format", help="parquet or delta.")]
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
Before = Annotated[
    str | None, typer.Option("--before", metavar="DAY", help="Only days before this one; default: today (UTC).")
]
FileMb = Annotated[int, typer.Option("--file-mb", min=1, help="Size of the new files.")]
