"""The ports of one broker: their numbers, and the servers that listen on them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from twinlog.base.addresses import VIP_PORT_BELOW
from twinlog.broker.clients import client_handlers
from twinlog.broker.pulls.pull_fast import FastPull
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.stats.rpc_times import timed
from twinlog.net.access import audited, open_audit_log, protected
from twinlog.net.admission import LOCAL_PLACES, Admission
from twinlog.net.closed import Closed, warn_that_closed
from twinlog.net.inbound import Inbound
from twinlog.net.local_admin import LocalAdmin, warn_if_open
from twinlog.net.server import Server
from twinlog.net.tls import ServerTls
from twinlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Buffer, Connection, FastPath, Handler
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.telemetry.metrics import Metrics

NOT_ON_VIP_PORT = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.POP_MESSAGE}
)


@contextlib.asynccontextmanager
async def listening(
    ctx: BrokerContext, handlers: Mapping[int, Handler], servers: list[Server], metrics: Metrics | None
) -> AsyncIterator[None]:
    """Listen on both ports until the end of the block; the second one answers everything but pulls.

    Each server is added to `servers` once it listens.
    """
    settings, net = ctx.settings, ctx.conf.net
    tls = ServerTls(net.tls)
    inbound = Inbound.configured(net, ctx.limits)
    admission = Admission(net.connections_max, net.address_connections_max, ctx.limits, local_places=LOCAL_PLACES)
    if metrics is not None:
        inbound.watch(metrics, "twinlog_broker")

    def closed(connection: Connection) -> None:
        ctx.holds.drop(connection)
        client_handlers.connection_closed(ctx, connection)

    is_closed = ctx.gate is None and ctx.conf.would_give_away
    if ctx.gate is not None:
        handlers = protected(handlers, ctx.gate)
    else:
        handlers = LocalAdmin(net.admin_from, ctx.limits, "broker.conf").around(handlers)
    if is_closed:
        # Until the next start, also when it becomes a master: what it holds was protected.
        handlers = Closed(f"{net.admin_from};{net.clients_from}", ctx.limits).around(handlers)
        warn_that_closed(net.clients_from)
    elif ctx.gate is None:
        warn_if_open(settings.bind_address, net.admin_from, _risk(ctx))
    audit = open_audit_log(ctx.conf.access, os.path.join(ctx.conf.store.root_dir, "config"), ctx.wall_ms)
    handlers = audited(handlers, audit, ctx.gate)
    if metrics is not None:
        handlers = timed(handlers, ctx.stats.rpc)
    without_pulls = {code: handler for code, handler in handlers.items() if code not in NOT_ON_VIP_PORT}
    ports = {settings.listen_port: handlers, settings.listen_port - VIP_PORT_BELOW: without_pulls}
    async with contextlib.AsyncExitStack() as stack:
        for port, answered in ports.items():
            sends = None if is_closed else FastSend(ctx)
            server = Server.configured(
                net,
                tls,
                answered,
                inbound,
                admission,
                after_batch=ctx.publish_appends if sends is None else sends.finish,
                fast=None if sends is None else fast_path(ctx, sends, with_pulls=answered is handlers),
                on_close=closed,
            )
            await server.start(settings.bind_address, port)
            stack.push_async_callback(server.stop)
            servers.append(server)
        yield


def fast_path(ctx: BrokerContext, sends: FastSend, *, with_pulls: bool = True) -> FastPath:
    """What gets every chunk first: sends, and pulls where they are answered and need no signature."""
    if not with_pulls or ctx.gate is not None:
        return sends.take
    pulls, take_sends = FastPull(ctx).take, sends.take

    def take(connection: Connection, data: bytes, at: int, end: int, out: list[Buffer]) -> int:
        after = pulls(connection, data, at, end, out)
        return after if after == end else take_sends(connection, data, after, end, out)

    return take


def _risk(ctx: BrokerContext) -> str:
    replication = ctx.conf.replication
    is_closed = replication.shared_secret is not None or replication.replicas_from
    log_too = (
        "" if is_closed else ", and copy the log from the HA port (haSharedSecret and haReplicasFrom prevent that)"
    )
    return f"read and write all topics{log_too}"


def with_port(conf: BrokerConf) -> BrokerConf:
    """`conf` with a real port: 0 stands for any port that is free together with its neighbours."""
    if conf.broker.listen_port:
        return conf
    port = free_port(conf.broker.bind_address)
    broker = dataclasses.replace(conf.broker, listen_port=port)
    replication = conf.replication
    if not replication.listen_port:
        replication = dataclasses.replace(replication, listen_port=port + 1)
    return dataclasses.replace(conf, broker=broker, replication=replication)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now, and so are port - 2 and port + 1."""
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind((host, 0))
            port = first.getsockname()[1]
            try:
                for other in (port - VIP_PORT_BELOW, port + 1):
                    stack.enter_context(socket.socket()).bind((host, other))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError(f"no three neighbouring ports are free on {host}")
