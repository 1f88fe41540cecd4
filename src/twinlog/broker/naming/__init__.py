"""The broker's side of name servers: what it registers and when, and which brokers share its name.

In: topics, settings, answers of name servers. Out: registrations, the master's address, other brokers' ids.
Must not answer requests.
"""
