"""A replica holds the bytes of its master's commit log, and its topics, groups and offsets.

    master/    serves replicas: HA port, transfers, what they acknowledged, changes of metadata
    replica/   follows a master: joins it, copies its log, synchronises its metadata
    metadata/  what both agree on about metadata: the kinds, and how tables and changes travel

In: a store, tables, connections. Out: equal bytes and tables, and what operators see of them.
Must not answer clients: `broker/` does. Modules beside the rooms are used by both sides.
"""
