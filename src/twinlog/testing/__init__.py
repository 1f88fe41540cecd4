"""Brokers for tests of one's own: what the pytest fixtures give, usable without pytest too.

In: how many brokers and replicas, and their settings. Out: a running cluster in a thread of this process, clients of
it, faults, and time that passes on demand. Nothing here is used by a broker that serves users.
"""
