"""Who is connected: producers, consumers, their subscriptions, locks and offsets.

In: heartbeats, commits, locks. Out: members of groups, offsets.
Must not touch the log.
"""
