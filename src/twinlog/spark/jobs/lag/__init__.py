"""Lag of consumer groups and of replicas over time.

In: a cluster. Out: a table with one row for each moment, group and queue or replica, and a plot of it.
Must not change offsets or create groups.
"""
