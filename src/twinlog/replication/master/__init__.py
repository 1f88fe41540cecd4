"""What runs on a master: the HA port, one link per replica, what replicas acknowledged, and changes of metadata.

In: reports of replicas, and their requests. Out: bytes of the log, rows that changed, and the end that enough replicas
hold. Must not append to the log.
"""
