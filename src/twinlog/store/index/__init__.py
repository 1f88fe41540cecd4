"""The message index: physical offsets of records by unique key and by each word of KEYS.

In: dispatch requests. Out: index files as Java writes them, and candidates for a key.
Must not change the log, and must not import queues or recovery.
"""
