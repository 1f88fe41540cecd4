"""Files on any file system: local paths, S3, and what Hadoop's file systems reach.

In: an address and the session's Hadoop settings. Out: a `Lake`, a root with a few operations on names below it. Must
not know what the files mean.

    address         opened as      who talks to the store                     used by
    /a, file:/a     LocalLake      the operating system                       driver and tasks
    s3a://, s3://   S3Lake         boto3; pyarrow for the bytes of tables     driver and tasks
    hdfs://, abfs://, gs://, oss://, ...   HadoopLake, the driver's JVM, with the connector and the settings that Spark
                                   uses itself; tasks have no JVM, so there Spark writes and reads the tables

Why two ways: a Python task has no JVM, and pyarrow has neither a conditional put nor, without a native library, HDFS.
S3 gets its own client, since a conditional put (`If-None-Match: *`) is all that exactly once needs, and so no job of
ours needs Hadoop's S3 connector with its half gigabyte of SDK. Its settings are still those of S3A
(`spark.hadoop.fs.s3a.*`, see `s3_settings`), or AWS's environment.

What every lake promises, and all that jobs may rely on:

    write           readers see the old bytes or the new ones, never a part
    put_if_absent   of two callers with the same name exactly one gets True, also if an answer was lost
    list            all names that begin with a text, sorted; a name written before the call began is there
    move            may be repeated: a source that is gone and a target that is there is a move that was done
    delete          may be repeated

There is no rename of directories, no lock and no clock: whoever needs more builds it from put_if_absent.
"""
