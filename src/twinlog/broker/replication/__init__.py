"""Replication within a broker: what runs in which role, how the role changes, what peers and operators ask.

In: requests of replicas and operators, answers of name servers. Out: running services of `replication/`, sends that are
answered when replicas have reported, status, metrics.
Must not decide what is safe: `replication/` does.
"""
