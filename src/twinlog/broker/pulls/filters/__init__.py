"""Which messages a consumer wants: tags, and SQL92 expressions over properties.

In: expressions, properties. Out: yes or no for a message, and bitmaps beside the queues.
Must not read the store.
"""
