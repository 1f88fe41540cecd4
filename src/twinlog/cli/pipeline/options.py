"""Options that several pipeline commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def name_server_option(help: str, variable: str | None = "NAMESRV_ADDR") -> Any:
    """The option that names a cluster, the same in every command; its other spelling is `SPELLINGS`."""
    return typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT;...", envvar=variable, help=help)


SPELLINGS = {"nameServer": "namesrvAddr"}  # as the option of Spark's sources is called, and some commands had it
NameServer = Annotated[str | None, name_server_option("Name servers.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help='An option of format("rocketmq"); may be repeated.'),
]
SparkMaster = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*] by default, spark://host:7077, yarn, ..."),
]
SparkConf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
]
LocalBelow = Annotated[
    str,
    typer.Option(
        "--local-below", metavar="SIZE", help="What is not larger is read in this process; 0 always starts Spark."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")]
