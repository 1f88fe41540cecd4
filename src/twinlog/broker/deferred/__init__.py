"""Messages that wait before consumers may see them: delay levels, timers, transactions.

In: messages that sends parked in system topics. Out: the same messages in their real queues, each at its time.
Must not deliver early, and must not count a message as delivered before it is stored in its real queue.
"""
