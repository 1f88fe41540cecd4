"""What operators ask for: topics, groups, settings, resets, cleaning.

In: requests of mqadmin and `twinlog admin`. Out: changed tables and settings, answers in Java's words.
Must not be on the path of a send or a pull.
"""
