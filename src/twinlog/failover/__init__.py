"""Failover: the brokers of one name agree through etcd which of them is the master.

    records.py       the values of the keys in etcd, and one consistent read of all of them
    view.py          everything that a decision depends on, and the steps that it may return
    decide.py        `decide(view, now_ms, rules) -> steps`: who leads, who follows, who waits for whom
    candidacy.py     whether a member takes the leader key that nobody holds, or whom it waits for
    switch.py        how a master hands over, when an operator asks for it
    in_sync.py       which members must hold a message before it is acknowledged; growing and shrinking that set
    behind.py        since when each replica has been behind
    transactions.py  the etcd transaction of each step that writes

In: a read of the keys, the role, log and epochs of this broker, what its replicas reported. Out: steps, one at a time,
and transactions. These modules know no socket, file or clock; a service carries the steps out and calls `decide` again.
What must survive a stop is in etcd, in the epoch file or in the log: nowhere else.
"""
