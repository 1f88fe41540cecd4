"""`twinlog pipeline sync`: replica directories of many masters, kept up to date by one streaming query.

In: masters, by name server or address. Out: replica stores on disk, tables of what changed, the status of each tick.
A tick walks job, sync_run, sync_plan and tick_work in the driver; task, broker_tick, copy_slots, log_copy and sources
with `replicas` in a task; then `tables` in the driver, where sync_metrics answers Prometheus.
Must not report bytes to a master before they are durable, and must not delete a replica.
"""
