"""RocketMQ data as Spark tables and streams, and the jobs built on them; needs the extra `twinlog[spark]`.

`source` and `store_source` are what Spark loads; `reading` and `writing` do the work of both; `jobs` are whole
programs. What they share stands here: options, paths, schema, offsets as text, the cluster and its connections.
Driver and workers import these modules by their paths, and checkpoints hold offsets and numbers only, no class names.
Must not be imported by anything but the command line, and the dashboard for the small files that jobs leave.
"""
