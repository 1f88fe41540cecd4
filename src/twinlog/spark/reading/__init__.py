"""Rows from messages: `brokers` reads topics over the network, `stores` reads directories.

In: options and offsets. Out: a plan in the driver, Arrow batches in the workers.
What both share stands here: decoding records to Arrow columns.
Must not write, and must not import `writing` or `jobs`.
"""
