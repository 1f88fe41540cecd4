"""Services that run on a timer and keep the store and the tables in order.

In: the open store, the tables, their settings. Out: bytes on disk, fewer files, no silent clients.
Must not answer requests.
"""
