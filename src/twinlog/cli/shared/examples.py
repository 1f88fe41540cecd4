"""An example for every command, shown at the end of its help; a test parses each of them with the command itself."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "namesrv": ("twinlog namesrv --port 9876",),
    "broker": ("twinlog broker -c conf/broker.conf", "twinlog broker -c conf/broker.conf -p"),
    "dev": ("twinlog dev --dir /tmp/twinlog",),
    "cluster": ("twinlog cluster conf/2m-2s-sync",),
    "completion": ('eval "$(twinlog completion bash)"',),
    "top": ("twinlog top -n 127.0.0.1:9876", "twinlog top --json"),
    "doctor": ("twinlog doctor -c conf/broker.conf", "twinlog doctor -n 127.0.0.1:9876 --strict"),
    "diagnose group": ("twinlog diagnose group order-readers -n 127.0.0.1:9876",),
    "diagnose replica": ("twinlog diagnose replica broker-a", "twinlog diagnose replica 10.0.0.2:10911"),
    "replication status": ("twinlog replication status --watch", "twinlog replication status -b 10.0.0.2:10911 --json"),
    "replication change-role": ("twinlog replication change-role -b 10.0.0.2:10911 --role ASYNC_MASTER",),
    "replication switch": ("twinlog replication switch broker-a --to 10.0.0.2:10911",),
    "replication rejoin": ("twinlog replication rejoin --store /data/store --cut 1073741824",),
    "failover list": ("twinlog failover list --etcd 10.0.0.1:2379",),
    "failover history": ("twinlog failover history broker-a -c conf/broker.conf",),
    "failover switchover": ("twinlog failover switchover broker-a --to 10.0.0.2:10911",),
    "failover failover": ("twinlog failover failover broker-a --to 10.0.0.2:10911 --force",),
    "failover pause": ("twinlog failover pause broker-a --why 'new disks'",),
    "failover resume": ("twinlog failover resume broker-a",),
    "failover reinit": ("twinlog failover reinit -c conf/broker.conf",),
    "tls init": ("twinlog tls init /etc/twinlog/tls --host broker-1 --host 10.0.0.1",),
    "store dump": ("twinlog store dump /data/store --topic Orders --limit 10 --body",),
    "store verify": ("twinlog store verify /data/store",),
    "store compare": ("twinlog store compare /data/master /data/replica",),
    "store resend": ("twinlog store resend /data/store/set-aside/tail-4096-8192 -n 127.0.0.1:9876",),
    "store repair": ("twinlog store repair /data/master --from /data/replica",),
    "pipeline sync": ("twinlog pipeline sync -n 127.0.0.1:9876 --to /data/replicas --once",),
    "pipeline status": ("twinlog pipeline status /data/replicas --lag-max 60s",),
    "pipeline archive": ("twinlog pipeline archive /data/archive -n 127.0.0.1:9876 -t Orders,Payments",),
    "pipeline compact": ("twinlog pipeline compact /data/archive",),
    "pipeline versions": ("twinlog pipeline versions /data/lake",),
    "pipeline expire": ("twinlog pipeline expire /data/lake --older-than 7d",),
    "pipeline audit": ("twinlog pipeline audit 10.0.0.1:10911 10.0.0.2:10911 --to /data/audits",),
    "pipeline restore": ("twinlog pipeline restore --archive /data/archive -n 127.0.0.1:9876 -t Orders",),
    "pipeline lag": ("twinlog pipeline lag -n 127.0.0.1:9876 --to /data/lag --for 10m --plot lag.html",),
    "pipeline metadata-diff": ("twinlog pipeline metadata-diff 10.0.0.1:10911 10.0.0.2:10911",),
    "pipeline script": ('spark-submit "$(twinlog pipeline script)" archive /data/archive -t Orders',),
}


def epilog_of(path: str) -> str | None:
    """The examples as the end of a help page; None for a command that brings its own."""
    lines = EXAMPLES.get(path)
    return None if lines is None else "Examples:\n\n" + "\n\n".join(lines)
