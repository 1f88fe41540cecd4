"""Tasks on a timer that keep the store in order: flushes, old segments, silent clients.

In: the open store and its settings. Out: bytes on disk, fewer files.
Must not answer requests.
"""
