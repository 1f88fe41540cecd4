"""Stores seen from outside, live or stopped, Twinlog's or Java's: dump, verify, compare.

In: a directory. Out: rows, findings, differences.
Must not lock, change or delete anything.
"""
