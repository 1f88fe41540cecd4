"""`twinlog failover`: who is master of a group with automatic failover, and what an operator decides about it.

`twinlog.observe` reads etcd, `report` turns what it has into tables, `wishes` asks for another master and waits for
it, `reinit` empties the store of a broken replica, `app` has the commands. In: options and keys of etcd. Out: lines,
tables, JSON, an operator's wish in etcd. Must not promote anybody: the brokers do, by `twinlog.failover`.
"""
