"""`twinlog pipeline sync`: replica directories of many masters, kept up to date by one streaming query.

In: masters, by name server or address. Out: replica stores on disk, and history tables of what changed.
A tick walks job, sync_run, sync_plan and tick_work in the driver; task, broker_tick, replica (with its journal and
replica_log), copy_slots, log_copy, sources and whole_records in a task; then history, in the driver.
Must not report bytes to a master before they are durable, and must not delete a replica.
"""
