"""One broker: it stores what producers send, serves what consumers pull, and follows or feeds another broker.

In: requests on two ports, transfers and reports on the HA port. Out: answers, and the files of one store directory.
`broker.py` starts it, `services.py` lists what runs, `context.py` is what all rooms share. A room imports the rooms
below it only (see the layers in pyproject.toml); from the context upwards: topics, pulls, clients, sends, then
admin, deferred, naming, stats and upkeep, then replication.
"""
