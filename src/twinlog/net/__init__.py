"""Remoting connections: both sides of a TCP connection that carries commands, with TLS, limits and busy waiting.

In: bytes of a socket, handlers by request code, commands to send. Out: requests to handlers, answers to callers.
`server` accepts, `pool` connects, `connection` is what both make; `inbound` limits what peers have begun to send.
Must not know topics, stores or clients.
"""
