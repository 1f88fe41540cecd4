"""What every other package may use: clocks, addresses, RocketMQ's reserved names, safe and atomic files.

In: text, bytes, paths. Out: values, and files that hold either their old or their new content.
Must not import any other package of Twinlog.
"""
