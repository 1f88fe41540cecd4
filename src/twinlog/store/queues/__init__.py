"""The consume queues: for each topic and queue id, where its messages are in the log, and reading through them.

In: dispatch requests. Out: units on disk, messages by queue offset, queue offsets by time.
Must not change the log, and must not import index or recovery.
"""
