"""Pulls: checks, filters, reading, and holding a pull until a message comes.

In: pull and query requests. Out: messages, or an answer later.
Must not change the store.
"""
