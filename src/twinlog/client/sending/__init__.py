"""A message on its way out: its header and body, what to do when a send fails, transactions, replies.

In: messages of the user. Out: requests, and decisions about retries.
Must not choose a broker: that is `routing`.
"""
