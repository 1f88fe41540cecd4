"""`twinlog exporter`: Prometheus metrics of a cluster, Java's or Twinlog's, until a signal stops it."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence

from twinlog.base.addresses import address_text
from twinlog.cli.shared.connecting import Parser, add_connection_options, argparse_app, client_options, run_client
from twinlog.cli.shared.option_values import interval_seconds, natural
from twinlog.cli.shared.running import print_ready, run_until_signal
from twinlog.client import Admin, BadArgument
from twinlog.exporter.broker_round import RoundLimits
from twinlog.exporter.collect_service import CollectService
from twinlog.exporter.patterns import TopicPatterns
from twinlog.telemetry.log import setup_logging
from twinlog.telemetry.metrics_port import MetricsServer

PORT = 5557  # that of rocketmq-exporter
EXAMPLES = """examples:
  twinlog exporter -n 127.0.0.1:9876
  twinlog exporter -n 10.0.0.1:9876 --listen 0.0.0.0 --topics 'Orders*' --topics '!*-test'
"""


def run(arguments: Sequence[str]) -> int:
    args = parser().parse_args(arguments)
    setup_logging(args.log_level)
    try:
        patterns = TopicPatterns(args.topics)
    except BadArgument as problem:
        print(f"twinlog exporter: {problem}", file=sys.stderr)
        return 2
    limits = RoundLimits(concurrency=args.concurrency, clients_max=args.clients, patterns=patterns)
    return run_client("exporter", export(args, limits))


exporter_app = argparse_app("exporter", "Serve Prometheus metrics of any cluster.", run, lambda: parser())


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="twinlog exporter",
        description="Serve Prometheus metrics of a cluster, under the names of rocketmq-exporter and of RocketMQ 5.",
        epilog=EXAMPLES,
    )
    made.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS", help="where to serve; default: %(default)s")
    made.add_argument("--port", type=port, default=PORT, help="default: %(default)s; 0 takes a free one")
    made.add_argument(
        "--interval",
        type=interval_seconds,
        default=15.0,
        metavar="SECONDS",
        help="how often brokers are asked; default: 15",
    )
    made.add_argument(
        "--topics",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these topics, with * and ?; with ! in front: not these; can be given again, or with commas",
    )
    made.add_argument(
        "--concurrency", type=positive, default=4, metavar="N", help="requests at the same time to a broker; default: 4"
    )
    made.add_argument(
        "--clients", type=natural, default=200, metavar="N", help="consumers to ask for their numbers; default: 200"
    )
    add_connection_options(made)
    return made


async def export(args: argparse.Namespace, limits: RoundLimits) -> None:
    rounds_begun = False

    def ready() -> None:
        nonlocal rounds_begun
        rounds_begun = True
        print_ready(f"twinlog exporter ready on http://{address_text(args.listen, server.port)}/metrics")

    admin = Admin(args.namesrvAddr, options=client_options(args))
    service = CollectService(admin, limits, interval_s=args.interval, on_ready=ready)
    server = MetricsServer(service, host=args.listen, port=args.port, port_option="--port")
    server.pages = lambda path, query: probe(path, is_ready=rounds_begun)
    await server.start()
    try:
        await run_until_signal(service)
    finally:
        await server.stop()


def probe(path: str, *, is_ready: bool) -> tuple[int, bytes] | None:
    """`/health` as long as it runs, `/readiness` once there are metrics of a cluster; None for another path."""
    states = {"/health": True, "/readiness": is_ready}
    if path not in states:
        return None
    return (200, b'{"status": "up"}\n') if states[path] else (503, b'{"status": "no metrics yet"}\n')


def port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65535):
        raise ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535, 0 takes a free one")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)
