"""Which pairs an audit compares: those that are given, or all that a name server knows."""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.endpoint import Endpoint, parse_endpoint
from twinlog.wire.bodies import ClusterInfo
from twinlog.wire.codes import MASTER_ID

Pairs = tuple[tuple[Endpoint, Endpoint], ...]


def pairs_of(texts: Sequence[str], options: ClusterOptions | None = None) -> Pairs:
    """The pairs of a list: master, replica, master, replica, ..."""
    if len(texts) % 2:
        raise BadOption(f"{texts[-1]!r} has no replica to compare with: give master, replica, master, replica, ...")
    endpoints = [parse_endpoint(text, options) for text in texts]
    pairs = tuple(zip(endpoints[::2], endpoints[1::2], strict=True))
    for master, replica in pairs:
        if master.text == replica.text:
            raise BadOption(f"{master} cannot be compared with itself: give the replica's directory or address as well")
    return pairs


def registered_pairs(options: ClusterOptions) -> Pairs:
    """Every replica that the name servers know, with its master."""
    if not options.name_servers:
        raise BadOption("nothing to audit: give a master and its replica, or --namesrvAddr to compare all replicas")
    return pairs_in(Cluster(options).info(), options)


def pairs_in(info: ClusterInfo, options: ClusterOptions) -> Pairs:
    pairs = []
    for name, broker in sorted(info.broker_addr_table.items()):
        master = broker.broker_addrs.get(MASTER_ID)
        replicas = [address for number, address in sorted(broker.broker_addrs.items()) if number != MASTER_ID]
        if replicas and master is None:
            raise BadOption(
                f"broker {name} has replicas ({', '.join(replicas)}) and no master: give the pairs as arguments"
            )
        pairs += [(Endpoint(str(master), options=options), Endpoint(address, options=options)) for address in replicas]
    if not pairs:
        raise BadOption(
            f"the name server {';'.join(options.name_servers)} knows no replicas: give the pairs as arguments"
        )
    return tuple(pairs)
