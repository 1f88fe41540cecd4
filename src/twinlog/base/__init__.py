"""What any part may use and what needs none of the others: clocks, addresses, RocketMQ's reserved names, safe files.

In: text, bytes, paths. Out: values, and files that are whole or unchanged.
Must not import anything of ours.
"""
