"""Messages as a table that grows with every run, and what is asked of it most."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(partition_cols=["day"])
def messages() -> DataFrame:
    """Every message of the topics, once: where a run ended is kept with the pipeline."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameServer", spark.conf.get("rocketmq.nameServer"))
        .option("subscribePattern", spark.conf.get("rocketmq.pattern"))
        .option("startingOffsets", "earliest")
        .option("initialOffsetsLocation", spark.conf.get("rocketmq.initialOffsets"))
        .load()
    )
    return stream.selectExpr("*", "to_date(storeTimestamp) as day")


@dp.materialized_view
def messages_per_hour() -> DataFrame:
    return spark.sql(
        "select topic, date_trunc('hour', storeTimestamp) as hour, count(*) as messages, sum(storeSize) as bytes "
        "from messages group by all"
    )
