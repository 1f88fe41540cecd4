"""Reads of store directories, Twinlog's or Java's, while a broker may write to them.

In: options, and log ends of a checkpoint. Out: byte ranges of logs (driver), Arrow batches of their records (workers).
DamagedRange is an error that names its owners, or a reported loss.
Must not lock, change or delete a file, and must not ask a broker.
"""
