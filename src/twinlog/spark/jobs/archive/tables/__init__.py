"""Archives as Iceberg and Delta tables: tasks write Parquet files, the driver commits them.

In: the files of a batch. Out: a commit that also holds the batch and the offsets of its source, so that the table
alone decides what it contains. Must not commit a batch twice, or after a gap. Needs no build of Iceberg or Delta for
the Spark in use.

    commits           what a commit holds, and which batch comes next: pure
    evolution         which columns a table gets or keeps: pure
    table             what both formats offer, and how one is opened
    iceberg           with pyiceberg; `iceberg_catalog` has the catalogs
    delta             with deltalake
    fill              the loop over batches; `write_tables` is what tasks do, `job` puts the parts together
    read_tables       a table by its files, for Spark
    compact_tables, expire     few large files instead of many, and the end of old versions
"""
