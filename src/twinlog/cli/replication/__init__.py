"""`twinlog replication`: the state of replicas, role changes, and the return of a diverged replica.

`facts` asks the brokers, `report` turns their answers into tables and progress, `watch` repeats both, `role` changes
the role of one broker, `switch` lets a replica take over from its master, `rejoin` cuts the log of a stopped replica,
`app` has the commands. In: options and answers of brokers. Out: lines, tables, JSON.
Must not decide about replication: that is `twinlog.replication`, inside the brokers.
"""
