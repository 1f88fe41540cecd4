from twinlog.spark.store_source import RocketmqStoreSource as DefaultSource  # noqa: F401
