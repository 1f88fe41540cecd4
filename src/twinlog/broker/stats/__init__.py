"""Numbers about the broker: rates, latencies, lag of groups, for mqadmin and Prometheus.

In: counts of sends and pulls. Out: tables and metrics, made when somebody asks.
Must not slow down what it counts.
"""
