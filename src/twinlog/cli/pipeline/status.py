"""`twinlog pipeline status`: how far the replicas of a synchronisation are, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from twinlog.base.clock import wall_clock_ms

if TYPE_CHECKING:
    from twinlog.spark.jobs.sync_status import BrokerState, SyncStatus

_CLOCK_MS_MAX = 60_000
_UNKNOWN = "?"


def status(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory of `twinlog pipeline sync --to`.")],
    lag_max: Annotated[
        str | None, typer.Option("--lag-max", metavar="TIME", help="Status 1 if a replica is older than this: 60s.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that is known as one JSON object.")] = False,
) -> None:
    """Show how far the replicas of a synchronisation are.

    Age counts since a replica held all that its master had. The exit status is 0 if all is well, 1 if a broker or the
    synchronisation failed, it was killed or hangs, or a replica is older than --lag-max, 2 if there is no status.
    """
    from twinlog.spark.errors import BadOption
    from twinlog.spark.jobs.sync_status import status_of

    try:
        limit_s = None if lag_max is None else _seconds(lag_max)
        found = status_of(directory)
    except (BadOption, OSError) as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2) from problem
    now_ms = wall_clock_ms()
    problems = problems_of(found, now_ms, limit_s)
    if as_json:
        print(json.dumps(document(found, now_ms, problems)))
    else:
        print_status(directory, found, now_ms, problems)
    if problems:
        raise typer.Exit(1)


def problems_of(status: SyncStatus, now_ms: int, lag_max_s: float | None = None) -> list[str]:
    """What is not well, a line each."""
    from twinlog.spark.jobs.sync_status import age_seconds

    found = []
    if status.error:
        found.append(f"the synchronisation ended: {status.error}")
    elif status.ended_ms is None and not status.is_running(now_ms):
        found.append(
            f"no tick for {duration((now_ms - status.written_ms) / 1000)}: the synchronisation on {status.host} "
            f"(process {status.pid}) was killed or hangs"
        )
    if status.written_ms - now_ms > _CLOCK_MS_MAX:
        found.append(f"the last tick is {duration((status.written_ms - now_ms) / 1000)} ahead of this machine's clock")
    for one in status.brokers:
        if one.error:
            since = duration((now_ms - one.failing_since_ms) / 1000) if one.failing_since_ms else _UNKNOWN
            ticks = "1 tick" if one.failed_ticks == 1 else f"{one.failed_ticks} ticks"
            found.append(f"{one.broker}: failed for {since}, {ticks}: {one.error}")
        age = age_seconds(one, now_ms, ticking=status.is_running(now_ms))
        if lag_max_s is not None and age is not None and age > lag_max_s:
            found.append(f"{one.broker}: {duration(age)} old, more than {duration(lag_max_s)}")
        elif lag_max_s is not None and age is None:
            found.append(f"{one.broker}: its first copy is not complete")
    return found


def document(status: SyncStatus, now_ms: int, problems: list[str]) -> dict:
    """The status as it is stored, with what it means now."""
    import msgspec

    from twinlog.spark.jobs.sync_status import age_seconds

    found = msgspec.to_builtins(status)
    running = status.is_running(now_ms)
    for row, one in zip(found["brokers"], status.brokers, strict=True):
        del row["observed"]
        row["lagSeconds"], row["state"] = age_seconds(one, now_ms, ticking=running), state_text(one)
    return {**found, "running": running, "problems": problems}


def print_status(directory: str, status: SyncStatus, now_ms: int, problems: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from twinlog.spark.jobs.sync_status import age_seconds

    console = Console(highlight=False)
    console.print(Text(headline(directory, status, now_ms)), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("broker", "log end", "behind", "age", "tick", "versions", "state"):
        right = name in ("log end", "behind", "age", "tick")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name != "broker")
    for one in status.brokers:
        age = age_seconds(one, now_ms, ticking=status.is_running(now_ms))
        table.add_row(
            Text(one.broker),
            f"{one.replica_end:,}",
            _known(one.lag_bytes, size),
            _known(age, duration),
            duration(one.seconds),
            versions_text(one),
            Text(state_text(one), style="red" if one.error else ""),
        )
    console.print(table)
    for line in problems:
        console.print(Text(line, style="red"), soft_wrap=True)


def headline(directory: str, status: SyncStatus, now_ms: int) -> str:
    ago = duration(max(0, now_ms - status.written_ms) / 1000)
    if status.ended_ms is not None:
        words = "ended with an error" if status.error else "ended"
    elif status.is_running(now_ms):
        words = f"every {duration(status.every_ms / 1000)}, running on {status.host} (process {status.pid})"
    else:
        words = "not running"
    return f"{directory}: tick {status.tick}, {ago} ago, {words}"


def state_text(one: BrokerState) -> str:
    if one.error:
        return "failed"
    if one.lag_bytes == 0:
        return "in step"
    if one.in_step_ms is None and one.master_end > one.replica_start:
        share = (one.replica_end - one.replica_start) / (one.master_end - one.replica_start)
        return f"first copy {100 * max(0.0, share):.0f} %"
    return "behind"


def versions_text(one: BrokerState) -> str:
    """The versions of the tables that operators change, by their counters."""
    named = (("topics", "t"), ("groups", "g"), ("offsets", "o"))
    return " ".join(f"{letter}{one.versions[kind].counter}" for kind, letter in named if kind in one.versions)


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else text(value)


def duration(seconds: float) -> str:
    """`0.3 s`, `12 s`, `5 m`, `3 h`, `2 d`: as short as it can be read."""
    for limit, divisor, unit in ((10, 1, " s"), (120, 1, " s"), (7_200, 60, " m"), (172_800, 3600, " h")):
        if seconds < limit:
            digits = 1 if limit == 10 and seconds % 1 else 0
            return f"{seconds / divisor:.{digits}f}{unit}"
    return f"{seconds / 86_400:.0f} d"


def size(count: float) -> str:
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} B"


def _seconds(text: str) -> float:
    from twinlog.spark.errors import BadOption

    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadOption(f"--lag-max {text!r} is not a time: write for example 60s, 5m or 1h")
    return value
