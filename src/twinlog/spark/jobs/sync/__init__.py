"""`twinlog pipeline sync`: many masters, many replica directories, one streaming query.

plan.py              who is synchronised where, and how the work is shared out        pure
metadata_changes.py  what differs between two moments of the tables, and redoing it   pure
whole_records.py     bytes as they arrive -> checked whole records                    pure
replica_state.py     what a replica directory knows of its synchronisation
replica.py           a replica directory, opened for one tick
sources.py           the master's bytes: its HA port, or its store directory
copy.py              one range after the other, each durable before it counts
broker_service.py    one tick of one broker, and of the brokers of one task
history.py           the tables of changes and ranges, and questions to them
job.py               the query
"""
