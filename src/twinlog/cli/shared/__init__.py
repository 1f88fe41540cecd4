"""What commands share; none of it is a command.

`lazy` imports only the command that runs, with `examples` in its help. `running` serves commands that run until a
signal, `connecting` those that are clients (`explain` says what an error means), `report` prints tables,
`progress_bar` and `streams` handle the terminal, `option_values` and `stored_settings` read what was given.
In: options, answers. Out: checked values, text on the standard streams, an exit status.
Must not import a command.
"""
