"""The `twinlog` command: one module per command, and a room for each family of commands.

`main` lists the commands; `lazy` imports only the one that runs. `running` serves the commands that run until a signal,
`connecting` those that are clients, `report` prints tables, `streams` handles the standard streams.
In: arguments of a command line. Out: lines, tables, JSON, an exit status.
Nothing imports this package: it is the composition root, and may import everything.
"""
