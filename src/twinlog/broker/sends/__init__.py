"""Sends: checks, rules that rewrite a message, the append, and the answer, which may have to wait.

In: send requests. Out: records in the store, answers once they are as safe as the settings ask.
Must not read messages for consumers.
"""
