"""A replica directory as a task of the synchronisation writes it: log, metadata, journal, and what is deleted.

In: bytes and metadata of a master. Out: a store that a broker can start on, and entries of the journal.
`replica` is the whole; `whole_records` takes records from bytes, `replica_log` appends them, `metadata_changes` finds
differences, `replica_state` has our own files, `replica_trim` deletes old segments.
Must not talk to a master, and must not count bytes as written before they are durable.
"""
