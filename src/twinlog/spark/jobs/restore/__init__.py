"""Archived or stored messages back to a broker, and consumer groups placed where they were.

In: an archive or stores. Out: sends, a map of old to new offsets, commits that were read back.
Must not send a message twice.
"""
