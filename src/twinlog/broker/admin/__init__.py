"""What operators change: topics, groups, settings, offsets, and cleaning up.

In: requests of mqadmin and `twinlog admin`. Out: changed tables and settings, answers in Java's words.
Must not be used by sends or pulls.
"""
