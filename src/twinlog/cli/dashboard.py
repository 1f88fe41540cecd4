"""`twinlog dashboard`: pages in a browser for any RocketMQ cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
import ssl
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from twinlog.base.system_calls import new_event_loop
from twinlog.cli.shared.connecting import (
    EXPECTED_FAILURES,
    Parser,
    add_connection_options,
    argparse_app,
    client_options,
)
from twinlog.cli.shared.running import allow_many_files, print_ready, run_until_signal
from twinlog.client import BadArgument
from twinlog.observe.replicas.failover_groups import place_of
from twinlog.settings.errors import SettingsError
from twinlog.settings.failover import FailoverSettings
from twinlog.telemetry.log import setup_logging

_SUMMARY = "Show a cluster in the browser: brokers, replication, topics, groups, messages, data jobs."
_EXAMPLE = """examples:
  twinlog dashboard -n 127.0.0.1:9876
  twinlog dashboard -n 10.0.0.1:9876 --host 0.0.0.0 --read-only --no-open
"""


def main(arguments: Sequence[str]) -> int:
    """The exit status of `twinlog dashboard` with these arguments."""
    args = _parser().parse_args(list(arguments))
    setup_logging("warning" if args.log_level == "error" else args.log_level)
    try:
        from twinlog.dashboard.dashboard_service import DashboardService
        from twinlog.dashboard.settings import DashboardSettings
    except ModuleNotFoundError as problem:
        print(f"twinlog dashboard: {problem}; type: pip install 'twinlog[dashboard]'", file=sys.stderr)
        return 1
    import asyncio

    def ready(url: str) -> None:
        print_ready(f"Twinlog dashboard of {args.namesrvAddr}: {url}{'  (read-only)' if args.read_only else ''}")
        if args.open and _has_display():
            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(url)

    try:
        _check_certificate(args.https_cert, args.https_key)
        settings = DashboardSettings(
            name_servers=args.namesrvAddr,
            options=client_options(args),
            host=args.host,
            port=args.port,
            read_only=args.read_only,
            failover=_failover(args),
            pipelines=args.pipeline,
            certificate=args.https_cert,
            certificate_key=args.https_key,
        )
        allow_many_files()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run_until_signal(DashboardService(settings, ready)))
    except (*EXPECTED_FAILURES, SettingsError, BaseExceptionGroup) as problem:
        first = _first(problem)
        if not isinstance(first, (*EXPECTED_FAILURES, SettingsError)):
            raise
        print(f"twinlog dashboard: {first}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("twinlog dashboard", description=_SUMMARY, epilog=_EXAMPLE)
    group = parser.add_argument_group("page")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on; default: %(default)s")
    group.add_argument("--port", default=8088, type=_port, help="0 takes a free one; default: %(default)s")
    group.add_argument("--read-only", action="store_true", help="show everything, change nothing")
    group.add_argument("--no-open", dest="open", action="store_false", help="do not open a browser")
    group.add_argument("--https-cert", metavar="FILE", type=Path, help="serve the page with TLS; certificate, PEM")
    group.add_argument("--https-key", metavar="FILE", type=Path, help="its private key, PEM")
    group.add_argument(
        "--pipeline", metavar="DIR", action="append", default=[], help="show the data jobs that write there; repeatable"
    )
    group.add_argument("--etcd", metavar="HOST:PORT,...", help="show the history of automatic failover from this etcd")
    group.add_argument("--failover-conf", metavar="FILE", type=Path, help="a broker.conf that names etcd, user and CA")
    add_connection_options(parser)
    return parser


def _failover(args: argparse.Namespace) -> FailoverSettings | None:
    if args.failover_conf is not None:
        return place_of(args.failover_conf, None, None).settings
    return FailoverSettings(etcd=args.etcd) if args.etcd else None


def _check_certificate(certificate: Path | None, key: Path | None) -> None:
    if bool(certificate) != bool(key):
        raise BadArgument("--https-cert and --https-key go together: give both or none")
    if certificate is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BadArgument(
            f"--https-cert {certificate} and --https-key {key} cannot be used: {error}; give files in PEM"
        ) from error


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535")
    return int(text)


def _has_display() -> bool:
    """Without one, `webbrowser` would start a browser inside this terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _first(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


dashboard_app = argparse_app("dashboard", _SUMMARY, main, lambda: _parser())
