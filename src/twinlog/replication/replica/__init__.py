"""What runs on a replica: it introduces itself, decides where to join, receives the log, synchronises metadata.

In: the master's bytes and tables. Out: appends to the log, reports, adopted tables, a status for operators.
Must not report what is not in the log.
"""
