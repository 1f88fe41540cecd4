"""Options of `twinlog pipeline restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from twinlog.cli.pipeline.options import name_server_option

NameServer = Annotated[str, name_server_option("Name servers of the target.")]
Topic = Annotated[list[str], typer.Option("-t", "--topic", help="Topics, with commas or repeated.")]
Archive = Annotated[str | None, typer.Option("--archive", metavar="DIR", help="Restore from an archive.")]
Store = Annotated[
    list[str] | None, typer.Option("--store", metavar="DIR", help="Restore from a store; may be repeated.")
]
Rename = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Restore a topic under another name.")
]
FromTime = Annotated[
    str | None,
    typer.Option("--from-time", metavar="TIME", help="Stored at or after: 2026-11-15T10:00, or milliseconds."),
]
ToTime = Annotated[str | None, typer.Option("--to-time", metavar="TIME", help="Stored before.")]
FromOffset = Annotated[int | None, typer.Option("--from-offset", min=0, help="Of every queue.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", min=0, help="Of every queue, excluded.")]
Broker = Annotated[list[str] | None, typer.Option("--broker", help="Only messages that these brokers held.")]
Queue = Annotated[list[int] | None, typer.Option("--queue", help="Only these queues.")]
Name = Annotated[str, typer.Option("--name", help="Restores of different origins to one topic need different names.")]
MapPath = Annotated[
    str | None, typer.Option("--map", metavar="DIR", help="Keep the table of old and new offsets here.")
]
Groups = Annotated[str | None, typer.Option("--groups", help="Groups whose offsets are restored too, with commas.")]
GroupOffsets = Annotated[
    str | None,
    typer.Option("--group-offsets", metavar="FROM", help="Where their offsets are: a store, NAME=STORE, or HOST:PORT."),
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Messages per request, at most.")]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help='An option of the target cluster, or with --store of format("rocketmq_store"); may be repeated.',
    ),
]
