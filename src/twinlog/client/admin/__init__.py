"""Administration: what `twinlog admin` does, as calls for programs.

In: arguments. Out: requests to brokers and name servers, typed answers.
Must not print, and keeps nothing but connections between calls.
"""
