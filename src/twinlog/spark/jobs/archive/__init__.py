"""Messages as a Parquet or Delta table, each of them once, and its compaction.

In: a stream or batch of messages. Out: files that readers see only when they are complete.
Must not delete what it did not write.
"""
