"""The consume queues: for each topic and queue id, where its messages lie in the log, and reading through them.

In: dispatch requests. Out: units on disk, messages by queue offset, offsets by time.
Must not change the log or call recovery.
"""
