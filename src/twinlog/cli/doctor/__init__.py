"""`twinlog doctor`: what is wrong with a broker or a cluster, and what to do about it.

`findings` is what a check returns, and how it is shown; `machine` checks a configuration file and the machine that it
is for, `cluster` asks name servers, brokers and etcd; `app` has the command. In: a broker.conf, addresses of name
servers. Out: lines or JSON, and an exit status. Must not change anything.
"""
