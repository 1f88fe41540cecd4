"""Connected producers and consumers: their groups, subscriptions, queue locks and offsets.

In: heartbeats, offset commits, locks, closed connections. Out: members of groups, notices to them, offsets.
Must not append to the log.
"""
