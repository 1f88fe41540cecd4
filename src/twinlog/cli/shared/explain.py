"""What a failed request means: an address of the wrong kind of server, or a topic that is spelled differently.

A name server, a broker's port and its HA port are easily mixed up. The server at the address is asked what it is, and
the message names the address that was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from twinlog.base.addresses import AddressError, parse_address
from twinlog.client import Admin, BrokerRefused, ClientError, ClientOptions, NoRoute
from twinlog.client.errors import REQUEST_FAILURES, NoNameServer
from twinlog.net.errors import ConnectFailed
from twinlog.wire.codes import ResponseCode

_PROBE_TIMEOUT_MS = 2_000
_SHOWN_MAX = 6


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the name most like `name`, or nothing."""
    by_lower = {each.lower(): each for each in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[nearest[0]]!r}?" if nearest else ""


async def explain(error: BaseException, name_servers: str, options: ClientOptions) -> str | None:
    """A message that says more than `error` does; None when there is nothing to add."""
    try:
        async with Admin(name_servers, options=options, timeout_ms=_PROBE_TIMEOUT_MS) as admin:
            if isinstance(error, NoRoute):
                return await _explain_topic(admin, error)
            return await _explain_address(admin, error)
    except (*REQUEST_FAILURES, OSError):
        return None


async def _explain_topic(admin: Admin, error: NoRoute) -> str | None:
    topics = await admin.topics()
    if error.topic not in topics:
        nearest = did_you_mean(error.topic, topics)
        return f"{error}{nearest}" if nearest else None
    masters = await admin.topic_masters(error.topic)
    for address in masters.values():
        if (perm := (await admin.topic_config(address, error.topic)).perm) & 6 != 6:
            allowed = {2: "write only", 4: "read only"}.get(perm & 6, "neither read nor write")
            return (
                f"topic {error.topic!r} has permission {perm} on {address}: {allowed}; change it with "
                f"`twinlog admin updateTopicPerm -t {error.topic} -b {address} -p 6`"
            )
    return None


async def _explain_address(admin: Admin, error: BaseException) -> str | None:
    address = _suspect(error)
    if address is None:
        return None
    as_name_server = isinstance(error, NoNameServer) or address in admin.session.name_servers
    if await _is_name_server(admin, address):
        # It is asked as a broker, whether or not it is a name server of this command too.
        return None if isinstance(error, NoNameServer) else await _explain_name_server(admin, address)
    if await _is_broker(admin, address):
        return f"{address} is a broker, not a name server; {await _meant(admin, address)}" if as_name_server else None
    broker = await _broker_of_ha_port(admin, address)
    if broker is None:
        return None
    meant = await _meant(admin, broker) if as_name_server else f"give -b {broker}"
    return f"{address} is the HA port of the broker {broker}: only replicas connect there; {meant}"


def _suspect(error: BaseException) -> str | None:
    """The address whose kind may be wrong."""
    if isinstance(error, NoNameServer):
        error = error.last if isinstance(error.last, BaseException) else error
    if isinstance(error, ConnectFailed):
        return None  # nothing listens there
    if isinstance(error, BrokerRefused):
        return error.address if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else None
    return getattr(error, "peer", None)


async def _explain_name_server(admin: Admin, address: str) -> str:
    async with Admin(address, options=admin.session.options, timeout_ms=_PROBE_TIMEOUT_MS) as there:
        table = (await there.cluster_info()).broker_addr_table
    brokers = [f"{one} ({name} {i})" for name in sorted(table) for i, one in sorted(table[name].broker_addrs.items())]
    listed = ", ".join(brokers[:_SHOWN_MAX]) + (", ..." if len(brokers) > _SHOWN_MAX else "")
    return f"{address} is a name server, not a broker; its brokers are: {listed or 'none'}"


async def _is_name_server(admin: Admin, address: str) -> bool:
    try:
        async with Admin(address, options=admin.session.options, timeout_ms=_PROBE_TIMEOUT_MS) as there:
            await there.cluster_info()
    except REQUEST_FAILURES:
        return False
    return True


async def _is_broker(admin: Admin, address: str) -> bool:
    try:
        await admin.runtime_info(address)
    except BrokerRefused as refused:
        return refused.code == ResponseCode.NO_PERMISSION
    except REQUEST_FAILURES:
        return False
    return True


async def _meant(admin: Admin, broker: str) -> str:
    """Which name server the broker registers with."""
    try:
        names = (await admin.broker_config(broker)).get("namesrvAddr")
    except REQUEST_FAILURES:
        names = None
    return f"it registers with {names}, so give -n '{names}'" if names else "give -n the address of a name server"


async def _broker_of_ha_port(admin: Admin, address: str) -> str | None:
    """The broker whose haListenPort this is: usually one port below, else one of those that are registered."""
    try:
        target = parse_address(address)
        below = str(target.below(1))
    except AddressError:
        return None
    if await _is_broker(admin, below):
        return below
    try:
        table = (await admin.cluster_info()).broker_addr_table
    except (*REQUEST_FAILURES, ClientError):
        return None
    for known in (one for each in table.values() for one in each.broker_addrs.values()):
        try:
            config = await admin.broker_config(known)
        except REQUEST_FAILURES:
            continue
        if parse_address(known).host == target.host and config.get("haListenPort") == str(target.port):
            return known
    return None
