"""Messages of a cluster: found by time, followed to their consumers, and shown as text, JSON or hexadecimal.

In: a topic and times, or a message. Out: messages and their consumptions, or text.
Must not write markup: pages and terminals decide how text looks. Must not import views of groups or replicas.
"""
