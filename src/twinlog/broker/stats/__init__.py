"""Numbers about the broker: rates, latencies, lag of groups, for mqadmin and Prometheus.

In: counts of sends and pulls, numbers of deferred messages. Out: tables and metrics, computed at each request.
Must not slow down what it counts.
"""
