from twinlog.spark.source import RocketmqSource as DefaultSource  # noqa: F401
