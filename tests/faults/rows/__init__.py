"""The rows of docs/reliability.md: each attacks a promise with real processes, and returns the numbers that it saw.

A row is a function (home, seed, side, its own lengths) -> text of numbers; it raises AssertionError when a promise was
broken. The tests beside this folder run the short form, `python tools/soak.py` the long one.
"""
