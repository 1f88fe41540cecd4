"""`twinlog diagnose`: why a group gets no messages, why a replica does not follow.

`app` has the commands, `report` shows findings. The rules are in
`observe/groups/diagnose_group.py` and `observe/replicas/diagnose_replica.py`.
In: the name of a group, or of a broker. Out: findings with evidence and the next step. Must not change anything.
"""
