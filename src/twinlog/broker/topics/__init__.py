"""Which topics and groups may exist: rules for names, limits of queues, creation when a client uses a name.

In: names and configurations. Out: a topic, or a refusal with its reason.
Must not answer requests itself.
"""
