"""What master and replica agree on about metadata: which kinds there are, and the forms in which they travel.

In: tables, JSON. Out: tables, JSON. Must not do I/O: `replica/` asks, `master/` and the broker answer.
"""
