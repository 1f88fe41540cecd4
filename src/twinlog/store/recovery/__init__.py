"""What happens to a store at its start: every whole record is kept, queues and index become complete.

In: the files as a crash left them. Out: the end of the log, and reports of what was damaged or cut.
`recovery` chooses where to start, scans the log, dispatches what is missing, repairs queue units and moves
damaged bytes to the quarantine. It runs before any port opens and never on a store that is being written.
"""
