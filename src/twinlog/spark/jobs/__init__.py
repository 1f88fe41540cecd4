"""Whole jobs on Spark, one room each: a function takes a session and a frozen description of what to do.

In: a description, and a function that shows progress. Out: files, messages or tables, and a summary.
Shared by the rooms: endpoint (one side of a comparison), progress, conditions (in SQL), sync_status (how far the copies
of a synchronisation are).
Must not print, and must not be imported by `reading` or `writing`.
"""
