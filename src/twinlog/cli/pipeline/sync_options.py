"""Options of `twinlog pipeline sync`."""

from __future__ import annotations

from typing import Annotated

import typer

from twinlog.cli.pipeline.options import name_server_option

To = Annotated[str, typer.Option("--to", metavar="DIR", help="Where the replica directories are, one per broker.")]
NameServer = Annotated[str | None, name_server_option("Name servers of the masters.")]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="Only the masters of this cluster.")]
Broker = Annotated[
    list[str] | None, typer.Option("--broker", metavar="NAME", help="Only this broker; may be repeated.")
]
Address = Annotated[
    list[str] | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="A master by its address, without a name server; may be repeated."
    ),
]
Store = Annotated[
    list[str] | None,
    typer.Option(
        "--store", metavar="BROKER=DIR", help="Read this broker's log from its store directory; may be repeated."
    ),
]
Every = Annotated[str, typer.Option("--every", metavar="TIME", help="How often masters are asked.")]
Once = Annotated[bool, typer.Option("--once", help="End when all replicas have what their masters had at the start.")]
History = Annotated[
    str | None, typer.Option("--history", metavar="DIR", help="The tables of changes; default: TO/_history.")
]
Checkpoint = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR", help="Spark's checkpoint; default: TO/_checkpoint.")
]
Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="SIZE|TIME", help="Delete older segments of the replicas: 500GB or 7d."),
]
HistoryKinds = Annotated[
    str | None,
    typer.Option("--history-kinds", metavar="KIND,...", help="Only these kinds of metadata: topics,groups."),
]
HistoryKeep = Annotated[
    str | None, typer.Option("--history-keep", metavar="TIME", help="Drop older rows of the tables of changes: 90d.")
]
OffsetsEvery = Annotated[
    str,
    typer.Option("--offsets-every", metavar="TIME", help="Keep one row per group, topic and interval; 0s keeps all."),
]
StatusKeep = Annotated[str, typer.Option("--status-keep", metavar="TIME", help="Drop older rows of the status table.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", metavar="PORT", help="Serve metrics for Prometheus here, in the driver.", min=0, max=65535
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="HOST", help="Where that port listens; 0.0.0.0 for other machines.")
]
HaSecretFile = Annotated[
    str | None,
    typer.Option("--ha-secret-file", metavar="FILE", help="Holds the masters' haSharedSecret, for Twinlog masters."),
]
DirectoryMode = Annotated[
    str,
    typer.Option("--directory-mode", metavar="MODE", help="Of new replica directories; 0750 lets a group in."),
]
FileMode = Annotated[
    str, typer.Option("--file-mode", metavar="MODE", help="Of new files in them; 0640 lets a group read.")
]
