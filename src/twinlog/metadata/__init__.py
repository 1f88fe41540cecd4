"""Topics, groups, offsets, filters and request modes: versioned tables in memory, and their files.

In: changes by handlers, a master's tables or differences, files of a Java or Twinlog broker.
Out: rows, revisions that name what changed, JSON in Java's form, files that are always whole.
Must not touch the network or the commit log. One module per table; `persisted.py` has what they share.
"""
