"""Topics, groups and offsets of a master, taken over by its replica: which kinds, what changed, and the timed task.

In: a master's tables or changes. Out: adopted tables.
Must not touch the commit log.
"""
