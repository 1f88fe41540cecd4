"""The `twinlog` command: one module per command, and a room for each family of commands.

`main` lists the commands; `shared` has what several of them need.
In: arguments of a command line. Out: lines, tables, JSON, an exit status.
Nothing imports this package: it is the composition root, and may import everything.
"""
