"""Whether replicas equal their masters: every record, queue unit and setting that differs is a finding.

In: pairs of endpoints, store directories or live brokers. Out: findings as a table, a result for each pair.
job inspects each pair (pair_plan, metadata, queues), then tasks compare ranges (compare, blocks, local_log, findings).
Must not change a store or a broker.
"""
