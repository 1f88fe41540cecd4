"""Parquet archives on object stores and HDFS, where no rename is atomic and no lock ends with its process.

In: batches of messages and a `Lake`. Out: files of a table, and a numbered chain of records that decides which of them
count. Must not count a file that no record names, and must not compare clocks.

    <archive>/
      topic=Orders/day=2026-11-15/b000000000012-00003.parquet   file 3 of batch 12
      topic=Orders/day=2026-11-14/c9f1c…-00000.parquet            a file that compaction wrote
      _archive.json                      format, columns and kind of source: written once
      _commits/000000000057.json         record 57: a batch, an exchange of files, the begin or the end of a run
      _commits/000000000063.state.json   what records 0 to 63 add up to
      _newest_state.json                 the number of the newest of these, for when a listing is empty
      _staging/<run>/…                   files of batches and exchanges that are not published
      _runs/archiving-<run>.json         a run at work: rewritten every few seconds

A record is written with put-if-absent, so a number has one owner, and whoever writes number n has read all before it.
It names the source's position after the batch: there is no checkpoint besides. Files are named by a record first and
then published, by moves that may be repeated; the writer's next record says that this is done, and after a kill the
next run finishes it. A run announces itself by a record too. A run that finds the record of a later one stops: it may
have been thought dead. So only one run adds batches, whatever its process, host or clock does.
"""
