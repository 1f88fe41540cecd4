"""A store becomes one truth at its start: every whole record kept, queues and index complete, damage set aside.

In: the files as a crash left them. Out: an end of the log, and reports of what was damaged or cut.
Runs before any port opens; must not run while a store is written.
"""
