"""RocketMQ's bytes as values, and values as bytes: frames, commands, headers, bodies, message records.

In: bytes of a peer or a file. Out: typed values, or an error of `errors`. Sizes are checked before anything is built.
`frame` -> `command` -> `headers` and `bodies` for requests; `record_layout` -> `message` for records of the log;
`values` has ids, handles and bits inside them, `java_json` the JSON of bodies, `sends` headers of sends, decoded fast.
Pure functions: must not open sockets or files, read the clock, or import another part of Twinlog except `base`.
"""
