"""Replicas: whether the log of a replica equals its master's, byte for byte."""

from __future__ import annotations

from argparse import Namespace

from twinlog.cli.admin.command import command, need, opt
from twinlog.cli.shared.progress_bar import ProgressBar
from twinlog.cli.shared.report import Report, text_report
from twinlog.client import Admin
from twinlog.observe.replicas.log_compare import compare_logs, plan_comparison


@command(
    "verifyReplica",
    "Compare the logs of replica and master",
    need("b", "brokerAddr", "the master, host:port"),
    need("r", "replicaAddr", "the replica, host:port"),
    opt("", "begin", "compare from this byte on; default: where both logs begin", kind=int),
)
async def verify_replica(admin: Admin, args: Namespace) -> Report:
    plan = await plan_comparison(admin, args.brokerAddr, args.replicaAddr, args.begin or 0)
    with ProgressBar(plan.begin, plan.end) as progress:
        equal = await compare_logs(admin, plan, progress.reached)
    data = {"equal": True, "begin": plan.begin, "end": plan.end, "behind": plan.behind_bytes}
    return text_report(*equal.lines, data=data)
