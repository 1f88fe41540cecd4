"""`twinlog pipeline`: the jobs that run on Spark, one module each.

This file is also what `spark-submit` runs: `spark-submit "$(twinlog pipeline script)" archive ...`.
"""

from __future__ import annotations

import typer

from twinlog.cli.pipeline.options import SPELLINGS
from twinlog.cli.pipeline.session_options import with_session_options
from twinlog.cli.shared.lazy import Lazy, LazyGroup

COMMANDS: dict[str, Lazy] = {
    "sync": Lazy("twinlog.cli.pipeline.sync:sync", "Keep replica directories equal to many masters."),
    "status": Lazy("twinlog.cli.pipeline.status:status", "Show how far the replicas of a synchronisation are."),
    "archive": Lazy("twinlog.cli.pipeline.archive:archive", "Copy messages into Parquet, Delta or Iceberg, once each."),
    "compact": Lazy("twinlog.cli.pipeline.archive:compact", "Rewrite the many small files of an archive as few."),
    "versions": Lazy("twinlog.cli.pipeline.table_versions:versions", "Show the versions of a table archive."),
    "expire": Lazy("twinlog.cli.pipeline.table_versions:expire", "Remove old versions of a table archive."),
    "audit": Lazy("twinlog.cli.pipeline.audit:audit", "Check that replicas equal their masters."),
    "restore": Lazy("twinlog.cli.pipeline.restore:restore", "Send the messages of an archive or store to a broker."),
    "lag": Lazy("twinlog.cli.pipeline.lag:lag", "Sample the lag of groups and replicas, as table and plot."),
    "metadata-diff": Lazy(
        "twinlog.cli.pipeline.metadata_diff:metadata_diff", "Show what differs between two brokers or two moments."
    ),
    "script": Lazy("twinlog.cli.pipeline.app:script", "Print the path of the file to give to spark-submit."),
}


class PipelineGroup(LazyGroup):
    table = COMMANDS
    wrap = staticmethod(with_session_options)


app = typer.Typer(
    cls=PipelineGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": lambda word: SPELLINGS.get(word, word)},
    help="Data jobs on Spark; `pip install 'twinlog[spark]'` brings all they need.",
)


@app.callback()
def pipeline() -> None:
    """Data jobs on Spark; `pip install 'twinlog[spark]'` brings all they need."""


def script() -> None:
    """Print the path of the file to give to spark-submit."""
    print(__file__)


if __name__ == "__main__":
    app()
