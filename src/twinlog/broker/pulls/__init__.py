"""Pulls: checks, filters, reading, and holding a pull until a message arrives.

In: pull and query requests. Out: messages, or an answer later.
Must not change the store.
"""
