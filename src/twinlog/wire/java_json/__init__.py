"""JSON as RocketMQ's Java library writes and reads it, which is more than JSON.

In: bytes of a peer or a file. Out: plain Python values, or a BodyError; never more memory than the budget allows.
Must not know what a body means: that is `wire/bodies.py`.
"""
