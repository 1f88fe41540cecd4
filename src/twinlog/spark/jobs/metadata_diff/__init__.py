"""What differs in the metadata of two brokers, two stores, or one broker at two moments.

In: two endpoints, or two moments of a history that `sync` wrote. Out: rows of kind, key, field, left and right.
Must not change either side.
"""
