"""`twinlog pipeline`: the jobs that run on Spark, one module per command, listed in `app`.

In: arguments of a command line, checked before Spark starts. Out: a job for `twinlog.spark.jobs`, then its summary as a
table or as JSON, and an exit status.
Must not import Spark before a command runs: `twinlog pipeline --help` works without it.
"""
