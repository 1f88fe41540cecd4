"""Records found in bytes: from a segment or a transfer to columns, or to requests for the dispatchers.

In: views of log bytes. Out: columns and values; nothing is written. `scan` reads one segment, `walk` the whole log,
`replica_tail` a log that a master's bytes extend.
Must not import queues, index or recovery.
"""
