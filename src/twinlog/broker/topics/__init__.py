"""Which topics and groups may exist: names, numbers of queues, and creation by use.

In: names. Out: a topic, or a reason to refuse.
Must not answer requests itself.
"""
