"""Which broker to talk to: connections, cached routes, and the choice of a queue.

In: topics. Out: routes, addresses, open connections, heartbeats.
Must not know what is sent or consumed.
"""
