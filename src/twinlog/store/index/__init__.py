"""The message index: records by unique key and by each word of KEYS.

In: dispatch requests. Out: index files as Java writes them, and physical offsets for a key.
Must not change the log or the queues.
"""
