"""Messages from rows: rows become send requests, which are sent until each is acknowledged.

In: Arrow batches of one task. Out: stored messages, and totals for the driver.
`idempotent` writes ask brokers what an earlier attempt has stored, and store no row twice.
Must not read topics in any other way, and must not import `reading` or `jobs`.
"""
