"""What operators see: log lines, numbers for Prometheus, and the health of tasks that are run again when they fail.

In: events, counts, exceptions. Out: lines on standard error, the text of /metrics.
Must not know what is counted or logged. Imports `base` only.
"""
