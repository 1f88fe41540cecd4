"""How much each customer has bought so far: a stream over a topic that keeps state (`transformWithState`).

    python examples/stateful_stream/running_totals.py 127.0.0.1:9876 Orders /tmp/running-totals

Bodies are JSON, `{"customer": "anna", "pieces": 3}`. Spark keeps the state in RocksDB, in the checkpoint: a query that
is started again goes on with the totals it had. It needs protobuf: pip install protobuf.
"""

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from twinlog.spark.session import start

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Totals(StatefulProcessor):
    """One number for each customer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "pieces bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._total.get() if self._total.exists() else (0,)
        total = before[0] + sum(row.pieces for row in rows)
        self._total.update((total,))
        yield Row(customer=key[0], total=total)

    def close(self) -> None:
        """Nothing to close."""


def totals(orders: DataFrame) -> DataFrame:
    """The new total of every customer who bought something in a batch."""
    bought = orders.selectExpr("from_json(cast(body as string), 'customer string, pieces int') o").select("o.*")
    return bought.groupBy("customer").transformWithState(
        Totals(), outputStructType="customer string, total bigint", outputMode="Update", timeMode="None"
    )


def main(name_server: str, topic: str, checkpoint: str) -> None:
    spark = start("running totals", conf={"spark.sql.streaming.stateStore.providerClass": STATE_STORE})
    orders = spark.readStream.format("rocketmq").options(
        nameServer=name_server, topic=topic, startingOffsets="earliest", initialOffsetsLocation=f"{checkpoint}/initial"
    )
    writer = totals(orders.load()).writeStream.outputMode("update").format("console")
    writer.queryName("running totals").option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
