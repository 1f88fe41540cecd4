"""The commit log: segments on disk, and every way in which bytes get to its end.

In: drafts of messages from the broker, or whole records from a master. Out: records at physical offsets.
Must not import scan, queues, index or recovery: they follow the log, the log does not call them.
"""
