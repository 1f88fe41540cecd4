"""The master's side of the commit-log transfer: one link per replica, the HA port, and what replicas acknowledged.

In: reports of replicas. Out: bytes of the log, and the end that enough replicas hold.
Must not append to the log.
"""
