"""Options that several pipeline commands have."""

from __future__ import annotations

from typing import Annotated

import typer

NameServer = Annotated[
    str | None,
    typer.Option("--nameServer", "-n", metavar="HOST:PORT;...", envvar="NAMESRV_ADDR", help="Name servers."),
]
Tls = Annotated[bool, typer.Option("--tls", help="Connect with TLS; certificates are checked.")]
TlsInsecure = Annotated[bool, typer.Option("--tls-insecure", help="Connect with TLS, certificates are not checked.")]
TlsCa = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="With TLS; certificates that vouch for servers, PEM.")
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="With TLS; certificate that is shown to servers, PEM.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")]
Credential = Annotated[str | None, typer.Option(help="Or ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.")]
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
