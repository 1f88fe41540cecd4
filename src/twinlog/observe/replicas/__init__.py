"""A replica beside its master: why it does not follow, where logs or metadata differ, and how roles are exchanged.

In: brokers of one name, as `cluster.broker_groups` found them, or the keys of a failover group in etcd.
Out: findings, differences, the steps of a planned switch. `diagnose_replica` decides without I/O on `replica_facts`.
Only `planned_switch` changes something, and it says at every failure who is master.
"""
