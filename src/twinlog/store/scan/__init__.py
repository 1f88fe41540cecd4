"""Records found in bytes: from a whole segment or one transfer to columns, requests for the dispatchers, or places.

In: views of log bytes. Out: columns and values; nothing is written.
Must not import queues, index or recovery.
"""
