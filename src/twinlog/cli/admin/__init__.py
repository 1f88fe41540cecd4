"""`twinlog admin`: mqadmin's commands, one row of a table each.

`command` declares rows, `report` shows results, `app` parses and runs; the other modules are the
commands themselves, by subject.
"""
