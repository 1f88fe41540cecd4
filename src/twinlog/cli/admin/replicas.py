"""Replicas: whether the log of a replica equals its master's, byte for byte."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from twinlog.cli.admin.command import command, need, opt
from twinlog.cli.report import Report, text_report
from twinlog.client import Admin
from twinlog.observe.log_compare import MIB, compare_logs, plan_comparison


@command(
    "verifyReplica",
    "Compare the logs of replica and master",
    need("b", "brokerAddr", "the master, host:port"),
    need("r", "replicaAddr", "the replica, host:port"),
    opt("", "begin", "compare from this byte on; default: where both logs begin", kind=int),
)
async def verify_replica(admin: Admin, args: Namespace) -> Report:
    plan = await plan_comparison(admin, args.brokerAddr, args.replicaAddr, args.begin or 0)
    with _Progress(plan.begin, plan.end) as progress:
        equal = await compare_logs(admin, plan, progress.reached)
    data = {"equal": True, "begin": plan.begin, "end": plan.end, "behind": plan.behind_bytes}
    return text_report(*equal.lines, data=data)


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._began = time.monotonic()
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")

    def reached(self, at: int) -> None:
        if not self._shows:
            return
        done, total = at - self._begin, self._end - self._begin
        rate = done / max(0.001, time.monotonic() - self._began)
        left = (total - done) / max(1.0, rate)
        bar = ("#" * (30 * done // total)).ljust(30, ".")
        sys.stderr.write(f"\r\x1b[K[{bar}] {100 * done // total} %  {rate / MIB:.1f} MiB/s  {left:.0f} s left")
        sys.stderr.flush()
