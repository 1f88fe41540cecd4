"""Reads of topics: offsets are planned in the driver, messages are pulled from brokers in the workers.

In: options, and offsets of a checkpoint. Out: ranges of queues (driver), Arrow batches of exactly those (workers).
A range that a broker cannot deliver is an error or a reported loss, never a shorter batch.
Must not open store files.
"""
