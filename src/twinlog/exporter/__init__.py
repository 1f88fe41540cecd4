"""The exporter: metrics of any RocketMQ cluster, Java's or Twinlog's, under the names that people's dashboards use.

In: views of `observe`, asked for every interval, each broker by a task of its own. Out: Prometheus text, made from the
last snapshot of each broker. A scrape asks nobody, and a broker that does not answer loses its series.
`*_names.py` are the metric names: those of rocketmq-exporter, those of RocketMQ 5's own endpoint, those of replication.
"""
