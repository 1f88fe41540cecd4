"""Messages that wait before consumers may see them: delay levels, timers, half messages of transactions.

In: parked messages in system topics. Out: the same messages in their real queues, each at its time.
Must not deliver early, and forgets nothing that it has not stored elsewhere.
"""
