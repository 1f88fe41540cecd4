"""The name server: which brokers there are, and which of them serve a topic.

In: registrations of brokers, questions of clients, changes by operators. Out: routes, and notices to brokers.
`route_table` decides, without I/O; the `*_handlers` answer; `nameserver_service` owns port and tasks.
Must not know stores or metadata tables: all it knows comes from registrations, and only KV configs are kept on disk.
"""
