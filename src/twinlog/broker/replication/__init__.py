"""Replication within a broker: which role it has, how that changes, what peers and operators ask about it.

In: requests of replicas and operators. Out: running services of `replication/`, status, metrics.
Must not decide what is safe: `replication/` does.
"""
