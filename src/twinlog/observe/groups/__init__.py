"""Consumer groups: how far they are, who their members are, why one gets no messages, and where a reset would lead.

In: answers of brokers and of the members behind them. Out: progress per queue, backlogs over time, findings.
`diagnose_group` decides without I/O on what `group_facts` gathered. Only `offset_reset.apply` changes something.
Must not import views of messages or replicas.
"""
