"""Copy a broker with Spark, see how far the copy is, and ask what a topic was before it changed.

Needs `pip install 'twinlog[spark]'`.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.dataset as ds

from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.job import sync
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync_status import status_of
from twinlog.spark.session import start

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def follow(to: Path) -> None:
    topic = f"Orders{time.time_ns()}"
    job = SyncJob(to=str(to), cluster=ClusterOptions(name_servers=(NAMES,)), once=True)
    spark = start("follow", conf={"spark.log.level": "ERROR", "spark.ui.enabled": "false"})
    with Producer(NAMES, "shop") as producer, Admin(NAMES) as admin:
        admin.create_topic(topic, queues=4)
        for number in range(100):
            producer.send(Outgoing(topic, f"order {number}"))
        sync(spark, job)  # until the copy has what its master had

        admin.create_topic(topic, queues=8)
        summary = sync(spark, job)
    spark.stop()
    for one in status_of(to).brokers:
        print(f"{one.broker}: {one.replica_end} bytes, {one.lag_bytes} behind, {one.error or 'no error'}")
    for row in ds.dataset(to / "_history" / "changes").to_table().to_pylist():
        if row["key"] == topic and row["oldValue"]:
            print("before:", row["oldValue"])
            print("after:", row["newValue"])
    if summary.failed:
        sys.exit(1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        follow(Path(folder))
