"""`twinlog top`: a live view of brokers, replicas, topics and groups in the terminal.

`grids` makes rows of what was asked, sorts and filters them, without I/O; `screen` is the terminal view (Textual), and
`app` the command with its forms for scripts. In: the address of a name server. Out: a screen, tables or JSON.
Must not change anything.
"""
