"""Pulls: checks, filters, reading, and holding a pull until a message arrives.

In: pull and query requests. Out: messages, at once or later.
`pull`: pull_checks (with filters) -> the store -> an answer, or hold; hold_service answers what is held.
Must not change the store.
"""
