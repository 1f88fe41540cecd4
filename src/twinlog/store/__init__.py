"""The store of a broker: a commit log, and the queues and index built from it, in RocketMQ's files.

    message_store -> durable_store -> writable_store -> readable_store    one object in four files; `plugins` around it
    recovery/  offline/    at start; for tools and Spark, read only
    queues/  index/        follow the log by dispatch requests
    scan/  log/            records found in bytes; segments and appends
    dispatch, file_pool, file_ops, lock, errors, ...    what all of them use

Plain blocking code with one writer: no tasks, no sockets. Whatever is not in the log can be built from it again.
"""
