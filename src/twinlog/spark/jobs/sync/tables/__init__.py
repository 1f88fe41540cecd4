"""The Parquet tables of a synchronisation, written in the driver: what changed, which ranges, the status of each tick.

In: reports of the tasks. Out: files in a directory or on a lake, each row once, and the rows of a table again.
`history` and `status_log` append; `table_join` keeps the number of files small, `lake_table` does so on a lake.
Must not touch a replica directory.
"""
