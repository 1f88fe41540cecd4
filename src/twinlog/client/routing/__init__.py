"""Which broker a request goes to: connections, cached routes, heartbeats, and the choice of a queue.

In: topics, requests, and their failures. Out: answers of servers, routes, addresses, heartbeats.
Must not import `sending` or `consuming`: it does not know what a request is for.
"""
