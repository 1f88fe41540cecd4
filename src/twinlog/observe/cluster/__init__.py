"""All brokers of a cluster: asked in rounds, judged, and remembered.

`broker_groups` asks (`status_shape` checks what comes back), `health` judges, `replica_view` and `cluster_view` are
what is shown, `survey` repeats the questions, `history` keeps what was seen.
In: answers of brokers. Out: `ClusterView`, with a row for every broker that was ever seen.
Must not change anything in a broker, and one broker that hangs must not delay the others.
"""
