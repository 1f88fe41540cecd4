"""`twinlog replication`: the state of replicas, role changes, and the return of a diverged replica.

`twinlog.observe` asks the brokers and carries out a planned switch; `report` turns answers into tables and progress,
`watch` repeats both, `role` changes the role of one broker, `rejoin` cuts the log of a stopped replica, `app` has the
commands. In: options and answers of brokers. Out: lines, tables, JSON.
Must not decide about replication: that is `twinlog.replication`, inside the brokers.
"""
