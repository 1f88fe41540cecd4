"""The replica's side: greet the master, decide where to join, receive its log, report how far it is.

In: the master's bytes. Out: appends to the log, reports, a status for operators.
Must not acknowledge what is not in the log.
"""
