"""A message on its way out: its header and body, the attempts to send it, transactions, replies.

In: messages of the user. Out: requests to the broker that `routing` chooses, results, and decisions about retries.
Must not open connections or keep routes: that is `routing`.
"""
