"""Messages on their way in: shares of a group, pulls, workers, listeners, offsets, locks.

In: answers of brokers. Out: calls of the user's listener, commits, retries.
Must not commit what was not consumed.
"""
