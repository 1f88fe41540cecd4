"""The files of a store, read without its broker: dump, verify, compare. For commands and Spark.

In: a directory of a store, live or stopped, Twinlog's or Java's. Out: rows, problems, differences.
Must not lock, change or delete anything.
"""
