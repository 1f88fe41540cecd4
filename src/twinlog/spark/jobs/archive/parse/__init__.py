"""Bodies of messages as columns: JSON, Avro and Protobuf.

In: bodies and a schema. Out: an Arrow column for each field, and for each body that does not parse, why.
Runs in Spark's tasks. Must not drop a row.
"""
