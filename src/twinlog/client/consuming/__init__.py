"""Messages on their way in: the member's share of the queues, pulls, workers, listener calls, offsets, locks.

In: routes, and answers of brokers. Out: calls of the user's listener, commits, retries.
Must not commit a message that was not consumed.
"""
